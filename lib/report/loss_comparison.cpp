#include "lib/report/loss_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "lib/bench/figure.h"
#include "lib/config/load.h"
#include "lib/io/json.h"
#include "lib/util/error.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

using Json = nlohmann::ordered_json;

double tokens_of(const Config& config) {
  return static_cast<double>(total_steps(config.train)) * static_cast<double>(config.train.global_batch_tokens);
}

Json json_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

/// The final validation loss: that after all tokens; none of a run that failed.
std::optional<double> final_loss(const ComparedRun& run, double tokens) {
  if (!run.error.empty()) return std::nullopt;
  const auto& curve = run.result.curve;
  if (curve.empty() || curve.back().tokens < tokens) return std::nullopt;
  return curve.back().loss;
}

/// Why a run of a complete comparison has no final loss; empty if it has one.
std::string error_of(const ComparedRun& run, double tokens) {
  if (!run.error.empty() || final_loss(run, tokens)) return run.error;
  return "ended without a finite validation loss";
}

Json run_json(const ComparedRun& run, double tokens, const std::string& error) {
  const auto known = [&](int64_t count) { return run.error.empty() ? Json(count) : Json(); };
  return {{"folder", run.folder},
          {"value", run.value.empty() ? Json() : Json(run.value)},
          {"seed", run.seed},
          {"error", error.empty() ? Json() : Json(error)},
          {"val_loss", json_or_null(final_loss(run, tokens))},
          {"val_bpb", json_or_null(run.result.bits_per_byte)},
          {"load_max_mean", json_or_null(run.result.load_max_mean)},
          {"dead_experts", known(run.result.dead_experts)},
          {"nonfinite_steps", known(run.result.nonfinite_steps)}};
}

/// Mean of what all runs have.
std::optional<double> mean_of(const std::vector<const ComparedRun*>& runs, auto&& figure) {
  double sum = 0;
  for (const auto* run : runs) {
    const std::optional<double> value = figure(*run);
    if (!value) return std::nullopt;
    sum += *value;
  }
  return sum / static_cast<double>(runs.size());
}

/// The runs of a value of the sweep, one per seed.
struct Trial {
  std::string value;
  std::vector<const ComparedRun*> runs = {};  ///< those that ended with a finite loss
  int64_t failed = 0;                         ///< number of the others
  std::optional<double> loss = {};            ///< mean of the final ones; none if all failed
};

std::vector<Trial> trials_of(const ComparedModel& model, double tokens) {
  std::vector<Trial> trials;
  for (const auto& run : model.runs) {
    if (trials.empty() || trials.back().value != run.value) trials.push_back({.value = run.value});
    if (final_loss(run, tokens))
      trials.back().runs.push_back(&run);
    else
      trials.back().failed++;
  }
  for (auto& trial : trials)
    if (!trial.runs.empty()) trial.loss = mean_of(trial.runs, [&](const ComparedRun& run) { return final_loss(run, tokens); });
  return trials;
}

/// Fills in what the model learned with the best value; `first`: the finished row of the first model, none for itself.
void write_learning(Json& row, const ComparedModel& model, const std::string& sweep, const Json* first) {
  const double tokens = row["tokens"];
  const auto trials = trials_of(model, tokens);
  // First by failed runs: a mean over fewer seeds can be lower because a bad one is not in it.
  const auto best = std::ranges::min_element(trials, {}, [](const Trial& trial) {
    return std::pair(trial.failed, trial.loss.value_or(std::numeric_limits<double>::infinity()));
  });
  if (!best->loss) {
    const auto& run = model.runs.front();
    fail("{}: no run ended with a finite validation loss ({}: {}); --retry-failed trains failed runs again", model.side.name,
         run_name(model.side.name, sweep, run.value, run.seed), error_of(run, tokens));
  }
  std::vector<double> losses;
  std::vector<LossCurve> curves;
  for (const auto* run : best->runs) {
    losses.push_back(*final_loss(*run, tokens));
    curves.push_back(run->result.curve);
  }
  const auto curve = mean_curve(curves);
  row["best"] = sweep.empty() ? Json() : Json(best->value);
  row["failed"] = best->failed;
  row["val_loss"] = *best->loss;
  row["val_loss_min"] = std::ranges::min(losses);
  row["val_loss_max"] = std::ranges::max(losses);
  row["val_loss_above_first"] = first ? *best->loss - first->at("val_loss").get<double>() : 0;
  row["val_bpb"] = json_or_null(mean_of(best->runs, [](const ComparedRun& run) { return run.result.bits_per_byte; }));
  row["load_max_mean"] = json_or_null(mean_of(best->runs, [](const ComparedRun& run) { return run.result.load_max_mean; }));
  row["dead_experts"] = json_or_null(mean_of(best->runs, [](const ComparedRun& run) -> std::optional<double> {
    if (!run.result.load_max_mean) return std::nullopt;
    return static_cast<double>(run.result.dead_experts);
  }));
  row["curve"] = Json::array();
  for (const auto& point : curve) row["curve"].push_back({point.tokens, point.loss, point.seconds});
  row["seconds"] = curve.back().seconds;
  row["trained_tok_s"] = tokens / curve.back().seconds;
  const auto reached = first ? point_at_loss(curve, first->at("val_loss")) : curve.back();
  row["tokens_to_first_loss"] = row["seconds_to_first_loss"] = row["tokens_share"] = row["seconds_share"] = nullptr;
  if (reached) {
    const Json& base = first ? *first : row;
    row["tokens_to_first_loss"] = reached->tokens;
    row["seconds_to_first_loss"] = reached->seconds;
    row["tokens_share"] = reached->tokens / base["tokens"].get<double>();
    row["seconds_share"] = reached->seconds / base["seconds"].get<double>();
  }
  row["by_value"] = nullptr;
  if (sweep.empty()) return;
  for (const auto& trial : trials)
    row["by_value"].push_back({{"value", trial.value}, {"val_loss", json_or_null(trial.loss)}, {"failed", trial.failed}});
}

// ---- text

std::string number(const Json& value, fmt::string_view format) {
  return value.is_null() ? "-" : fmt::format(fmt::runtime(format), value.get<double>());
}

std::string with_share(const Json& row, const char* key, const char* share, auto&& text) {
  if (row[key].is_null()) return "not reached";
  return fmt::format("{} ({:.3f})", text(row[key].get<double>()), row[share].get<double>());
}

std::string spread_text(const Json& row) {
  const auto mean = number(row["val_loss"], "{:.4f}");
  if (row["val_loss_min"] == row["val_loss_max"]) return mean;
  return fmt::format("{} ({:.4f} to {:.4f})", mean, row["val_loss_min"].get<double>(), row["val_loss_max"].get<double>());
}

std::string results_table(const Json& comparison) {
  const Json& rows = comparison["rows"];
  const std::string first = rows[0]["name"];
  std::vector<std::vector<std::string>> table = {{""}};
  for (const auto& row : rows) table[0].push_back(row["name"]);
  const auto line = [&](std::string label, auto&& cell) {
    table.push_back({std::move(label)});
    for (const auto& row : rows) table.back().push_back(cell(row));
  };
  const auto known = [&](const char* key) {
    return std::ranges::any_of(rows, [&](const Json& row) { return !row[key].is_null(); });
  };
  if (!comparison["sweep"].is_null())
    line("best " + comparison["sweep"].get<std::string>(), [](const Json& row) { return row["best"].get<std::string>(); });
  line("validation loss", spread_text);
  line("above that of " + first, [](const Json& row) { return number(row["val_loss_above_first"], "{:+.4f}"); });
  if (known("val_bpb")) line("bits per byte", [](const Json& row) { return number(row["val_bpb"], "{:.4f}"); });
  line("trained tokens", [](const Json& row) { return format_count(row["tokens"]); });
  line("tokens to the loss of " + first,
       [](const Json& row) { return with_share(row, "tokens_to_first_loss", "tokens_share", format_count); });
  line("time to the loss of " + first,
       [](const Json& row) { return with_share(row, "seconds_to_first_loss", "seconds_share", format_duration); });
  line("tok/s while training (of that in blocks)", [](const Json& row) {
    const double trained = row["trained_tok_s"];
    return fmt::format("{:.0f} ({:.3f})", trained, trained / row["tok_s"].get<double>());
  });
  if (known("load_max_mean")) {
    line("largest load of an expert", [](const Json& row) { return number(row["load_max_mean"], "{:.2f}"); });
    line("experts without a token", [](const Json& row) { return number(row["dead_experts"], "{:g}"); });
  }
  return bench::format_table(table);
}

/// Of a value of the sweep.
std::string trial_text(const Json& trial) {
  if (trial["val_loss"].is_null()) return "failed";
  const auto loss = number(trial["val_loss"], "{:.4f}");
  return trial["failed"] == 0 ? loss : fmt::format("{} ({} failed)", loss, trial["failed"].get<int64_t>());
}

/// A line per value, and which models have their best value at an end of the sweep.
std::string sweep_table(const Json& comparison) {
  const Json& rows = comparison["rows"];
  const std::string key = comparison["sweep"];
  std::vector<std::vector<std::string>> table = {{"validation loss by " + key}};
  std::string at_end;
  for (const auto& row : rows) {
    table[0].push_back(row["name"]);
    const auto& values = row["by_value"];
    if (values.size() > 1 && (row["best"] == values.front()["value"] || row["best"] == values.back()["value"]))
      at_end += fmt::format("The best {} of {} is at an end of the sweep, {}: values beyond it may be better.\n", key,
                            row["name"].get<std::string>(), row["best"].get<std::string>());
  }
  for (size_t i = 0; i < rows[0]["by_value"].size(); i++) {
    table.push_back({rows[0]["by_value"][i]["value"].get<std::string>()});
    for (const auto& row : rows) table.back().push_back(trial_text(row["by_value"][i]));
  }
  return "\n" + bench::format_table(table) + at_end;
}

/// A line per run that failed, and which models have fewer seeds for it; empty if none failed.
std::string failures_text(const Json& comparison) {
  std::string text;
  for (const auto& run : failed_runs(comparison, "comparison")) text += fmt::format("  {}\n", run);
  if (text.empty()) return "";
  text = "\nFailed:\n" + text;
  for (const auto& row : comparison["rows"])
    if (row["failed"] != 0)
      text += fmt::format("The figures of {} leave out {} of its seeds.\n", row["name"].get<std::string>(),
                          row["failed"].get<int64_t>());
  return text;
}

std::string conclusion(const Json& first, const Json& row) {
  const std::string name = row["name"], base = first["name"];
  const double loss = first["val_loss"];
  if (row["tokens_share"].is_null())
    return fmt::format("{} does not reach the final validation loss of {}, {:.4f} nats per token.\n", name, base, loss);
  return fmt::format(
      "{} reaches the final validation loss of {}, {:.4f} nats per token, in {:.3f} of its tokens and {:.3f} of its time.\n",
      name, base, loss, row["tokens_share"].get<double>(), row["seconds_share"].get<double>());
}

}  // namespace

std::string run_name(const std::string& model, const std::string& sweep, const std::string& value, int64_t seed) {
  return fmt::format("{}{}, seed {}", model, value.empty() ? "" : fmt::format(", {}={}", sweep, value), seed);
}

std::vector<std::string> failed_runs(const nlohmann::json& comparison, const std::string& where) {
  const JsonFields fields{comparison, where};
  std::vector<std::string> failed;
  for (const auto& row : fields.list("rows")) {
    const JsonFields model{row, where};
    for (const auto& entry : model.list("runs")) {
      const JsonFields run{entry, where};
      if (!entry.contains("error") || entry["error"].is_null()) continue;
      const bool swept = entry.contains("value") && !entry["value"].is_null();
      failed.push_back(
          run_name(model.text("name"), swept ? fields.text("sweep") : "", swept ? run.text("value") : "", run.count("seed")) +
          ": " + run.text("error"));
    }
  }
  return failed;
}

Json loss_comparison(const LossComparison& comparison, bool complete) {
  Json json{
      {"sweep", comparison.sweep.empty() ? Json() : Json(comparison.sweep)}, {"complete", complete}, {"rows", Json::array()}};
  const Side& first = comparison.models.front().side;
  for (const auto& model : comparison.models) {
    const bool is_first = &model == &comparison.models.front();
    Json row = comparison_row(model.side);
    const double tokens = tokens_of(model.side.config);
    row["tokens"] = tokens;
    row["settings"] = dump_config(model.side.config);
    row["runs"] = Json::array();
    for (const auto& run : model.runs)
      row["runs"].push_back(run_json(run, tokens, complete ? error_of(run, tokens) : run.error));
    if (!is_first) row.update(comparison_ratios(first, model.side));
    if (complete) write_learning(row, model, comparison.sweep, is_first ? nullptr : &json["rows"][0]);
    json["rows"].push_back(std::move(row));
  }
  return json;
}

std::string loss_comparison_text(const Json& comparison) {
  const Json& rows = comparison["rows"];
  std::string text = results_table(comparison);
  if (!comparison["sweep"].is_null()) text += sweep_table(comparison);
  text += failures_text(comparison) + "\n";
  for (size_t i = 1; i < rows.size(); i++) text += conclusion(rows[0], rows[i]);
  return text + "Time is that of the training steps of each run, without evaluation and checkpoints.\n";
}

}  // namespace scatterlm

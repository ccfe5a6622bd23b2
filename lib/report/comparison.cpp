#include "lib/report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/bench/figure.h"
#include "lib/bench/timer.h"
#include "lib/config/check.h"
#include "lib/config/difference.h"
#include "lib/report/report.h"
#include "lib/train/flops.h"
#include "lib/train/trainer.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

using nlohmann::ordered_json;

/// One line of the table: a value of each model, or one per block.
struct Line {
  std::string key, label;
  std::string (*text)(double);
  std::vector<double> first, second;
};

std::vector<double> map(std::vector<double> values, auto&& function) {
  std::transform(values.begin(), values.end(), values.begin(), function);
  return values;
}

double flops_of_token(const Side& side) { return nn::flops_per_token(side.config.model, side.config.train.sequence_length); }

std::vector<double> tokens_per_second(const Side& side) {
  const auto tokens = static_cast<double>(side.config.train.global_batch_tokens);
  return map(side.block_ms, [&](double ms) { return 1000 * tokens / ms; });
}

std::vector<double> flops_per_second(const Side& side) {
  return map(tokens_per_second(side), [flops = flops_of_token(side)](double rate) { return rate * flops; });
}

std::vector<double> utilisation(const Side& side, const PeakFlops& peak) {
  return map(flops_per_second(side), [&](double rate) { return rate / peak.flops; });
}

std::vector<Line> lines_of(const Side& a, const Side& b) {
  const auto size_a = nn::model_size(a.config.model), size_b = nn::model_size(b.config.model);
  const auto one = [](auto value) { return std::vector<double>{static_cast<double>(value)}; };
  std::vector<Line> lines;
  lines.push_back(
      {"tok_s", "tok/s", [](double v) { return fmt::format("{:.0f}", v); }, tokens_per_second(a), tokens_per_second(b)});
  lines.push_back({"step_ms", "ms per step", [](double v) { return fmt::format("{:.2f}", v); }, a.block_ms, b.block_ms});
  lines.push_back({"flops_per_s", "GFLOP/s", [](double v) { return fmt::format("{:.1f}", v / 1e9); }, flops_per_second(a),
                   flops_per_second(b)});
  const auto peak_a = peak_of(a.numerics), peak_b = peak_of(b.numerics);
  if (peak_a && peak_b)
    lines.push_back({"mfu", "MFU", [](double v) { return fmt::format("{:.1f} %", 100 * v); }, utilisation(a, *peak_a),
                     utilisation(b, *peak_b)});
  lines.push_back(
      {"peak_gib", "peak memory, GiB", [](double v) { return fmt::format("{:.3g}", v); }, one(a.peak_gib), one(b.peak_gib)});
  lines.push_back({"total_parameters", "parameters", format_count, one(size_a.total), one(size_b.total)});
  lines.push_back({"active_parameters", "active parameters", format_count, one(size_a.active), one(size_b.active)});
  lines.push_back({"flops_per_token", "FLOPs per token", format_count, one(flops_of_token(a)), one(flops_of_token(b))});
  return lines;
}

std::vector<double> ratios(const Line& line) {
  std::vector<double> result;
  for (size_t i = 0; i < line.first.size(); i++) result.push_back(line.second.at(i) / line.first[i]);
  return result;
}

std::string cell(const std::vector<double>& values, std::string (*text)(double)) {
  const auto spread = bench::spread_of(values);
  if (values.size() == 1) return text(spread.median);
  return fmt::format("{} ({} to {})", text(spread.median), text(spread.p10), text(spread.p90));
}

void write(ordered_json& json, const std::string& key, const std::vector<double>& values) {
  const auto spread = bench::spread_of(values);
  json[key] = spread.median;
  if (values.size() == 1) return;
  json[key + "_p10"] = spread.p10;
  json[key + "_p90"] = spread.p90;
}

Condition same_value(std::string name, std::string first, std::string second) {
  const bool equal = first == second;
  return {std::move(name), std::move(first), std::move(second), equal};
}

Condition same_count(std::string name, double first, double second) {
  const bool equal = std::abs(first - second) <= 0.02 * std::max(first, second);
  return {std::move(name), format_count(first), format_count(second), equal};
}

/// Keys without effect on one of the two.
bool one_ignores(const Side& a, const Side& b, const std::string& key) {
  const auto ignores = [&](const Side& side) {
    return std::ranges::any_of(ignored_keys(side.config), [&](const Ignored& ignored) { return ignored.covers(key); });
  };
  return ignores(a) || ignores(b);
}

/// Of all keys that begin so and that both look at; the texts are those that differ.
Condition same_keys(std::string name, const Side& a, const Side& b, const std::vector<std::string>& beginnings) {
  Condition condition{std::move(name), "", "", true};
  for (const auto& difference : differences(a.config, b.config)) {
    const auto begins = [&](const std::string& beginning) { return difference.key.starts_with(beginning); };
    if (std::none_of(beginnings.begin(), beginnings.end(), begins) || one_ignores(a, b, difference.key)) continue;
    const char* separator = condition.equal ? "" : ", ";
    condition.first += fmt::format("{}{}={}", separator, difference.key, difference.first);
    condition.second += fmt::format("{}{}={}", separator, difference.key, difference.second);
    condition.equal = false;
  }
  return condition;
}

/// Of each kind of layer that both models have; that only one has it is a difference of `model.layers`.
std::vector<Condition> layer_conditions(const Side& a, const Side& b) {
  std::vector<Condition> conditions;
  for (const auto& [name, group] : {std::pair{"gqa layers", "model.attention"},
                                    {"moa layers", "model.moa"},
                                    {"dense layers", "model.dense"},
                                    {"moe layers", "model.moe"},
                                    {"routers", "model.router"}})
    if (!one_ignores(a, b, group)) conditions.push_back(same_keys(name, a, b, {std::string(group) + "."}));
  return conditions;
}

/// A line on ratios of speed that differ too much from block to block; empty if they agree.
std::string spread_line(const Side& a, const Side& b) {
  constexpr double kWidest = 1.15;  // on an idle machine blocks agree within a few percent
  std::vector<double> ratios;
  for (size_t i = 0; i < a.block_ms.size(); i++) ratios.push_back(a.block_ms[i] / b.block_ms.at(i));
  const auto spread = bench::spread_of(ratios);
  if (spread.p90 <= kWidest * spread.p10) return "";
  return fmt::format(
      "\nThe ratio of tok/s was between {:.2f} and {:.2f} in different blocks: too wide a spread for a conclusion. Repeat it on an "
      "idle machine, with more --blocks (now {}).\n",
      std::ranges::min(ratios), std::ranges::max(ratios), ratios.size());
}

std::string text_of(const Condition& condition) {
  if (condition.first.empty()) return condition.name;
  if (condition.first == condition.second) return condition.name + ": " + condition.first;
  return fmt::format("{}: {} and {}", condition.name, condition.first, condition.second);
}

}  // namespace

std::vector<Condition> conditions(const Side& a, const Side& b) {
  const auto& train_a = a.config.train;
  const auto& train_b = b.config.train;
  const auto size_a = nn::model_size(a.config.model), size_b = nn::model_size(b.config.model);
  const auto number = [](int64_t value) { return fmt::format("{}", value); };
  const auto dtype = [](const Side& side) { return side.numerics.dtype == at::kBFloat16 ? "bfloat16" : "float32"; };
  std::vector<Condition> conditions = {
      // What Loader and Trainer choose samples by.
      same_keys("tokens of every step", a, b,
                {"data.train", "data.raw_dtype", "train.seed", "train.sequence_length", "train.global_batch_tokens"}),
      same_keys("document boundaries", a, b, {"data.intra_document_masking", "data.eot_token"}),
      same_value("sequence length", number(train_a.sequence_length), number(train_b.sequence_length)),
      same_value("tokens per step", number(train_a.global_batch_tokens), number(train_b.global_batch_tokens)),
      same_value("sequences per forward pass", number(BatchPlan(train_a).per_pass), number(BatchPlan(train_b).per_pass)),
      same_value("precision", dtype(a), dtype(b)),
      same_keys("optimiser", a, b, {"optim."}),
      same_value("vocabulary", number(a.config.model.vocab_size), number(b.config.model.vocab_size)),
      same_value("width", number(a.config.model.hidden_size), number(b.config.model.hidden_size)),
      same_value("layers", a.config.model.layers, b.config.model.layers),
      same_keys("embedding, norms and initial values", a, b,
                {"model.tie_word_embeddings", "model.rms_norm_eps", "model.initializer_range"}),
      same_count("FLOPs per token", flops_of_token(a), flops_of_token(b)),
      same_count("active parameters", static_cast<double>(size_a.active), static_cast<double>(size_b.active)),
      same_count("parameters", static_cast<double>(size_a.total), static_cast<double>(size_b.total)),
  };
  const auto of_layers = layer_conditions(a, b);
  conditions.insert(conditions.end(), of_layers.begin(), of_layers.end());
  return conditions;
}

std::string comparison_text(const Side& a, const Side& b) {
  std::vector<std::vector<std::string>> rows = {{"", a.path, b.path, "second / first"}};
  const auto ratio_text = [](double ratio) { return fmt::format("{:.3f}", ratio); };
  for (const auto& line : lines_of(a, b))
    rows.push_back({line.label, cell(line.first, line.text), cell(line.second, line.text), cell(ratios(line), ratio_text)});
  std::string equal = "\nEqual (counts within 2 %):\n", unequal = "Not equal:\n";
  for (const auto& condition : conditions(a, b)) (condition.equal ? equal : unequal) += "  " + text_of(condition) + "\n";
  return bench::format_table(rows) + spread_line(a, b) + equal + unequal;
}

ordered_json comparison_rows(const Side& a, const Side& b) {
  ordered_json first = {{"config", a.path}, {"block_ms", a.block_ms}};
  ordered_json second = {{"config", b.path}, {"block_ms", b.block_ms}};
  first["mfu"] = second["mfu"] = nullptr;
  for (const auto& line : lines_of(a, b)) {
    write(first, line.key, line.first);
    write(second, line.key, line.second);
  }
  return ordered_json::array({first, second});
}

ordered_json comparison_ratios(const Side& a, const Side& b) {
  ordered_json json;
  for (const auto& line : lines_of(a, b)) write(json["ratio"], line.key, ratios(line));
  for (const auto& condition : conditions(a, b)) {
    json["conditions"].push_back(
        {{"name", condition.name}, {"equal", condition.equal}, {"first", condition.first}, {"second", condition.second}});
  }
  return json;
}

}  // namespace scatterlm

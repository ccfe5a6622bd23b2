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

/// A figure of a model: one value, or one per block.
struct Figure {
  std::string key, label;
  std::string (*text)(double);
  std::vector<double> values;
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

std::vector<Figure> figures_of(const Side& side) {
  const auto size = nn::model_size(side.config.model);
  const auto one = [](auto value) { return std::vector<double>{static_cast<double>(value)}; };
  std::vector<Figure> figures;
  figures.push_back({"tok_s", "tok/s", [](double v) { return fmt::format("{:.0f}", v); }, tokens_per_second(side)});
  figures.push_back({"step_ms", "ms per step", [](double v) { return fmt::format("{:.2f}", v); }, side.block_ms});
  figures.push_back(
      {"flops_per_s", "GFLOP/s", [](double v) { return fmt::format("{:.1f}", v / 1e9); }, flops_per_second(side)});
  if (const auto peak = peak_of(side.numerics))
    figures.push_back({"mfu", "MFU", [](double v) { return fmt::format("{:.1f} %", 100 * v); }, utilisation(side, *peak)});
  figures.push_back({"peak_gib", "peak memory, GiB", [](double v) { return fmt::format("{:.3g}", v); }, one(side.peak_gib)});
  figures.push_back({"total_parameters", "parameters", format_count, one(size.total)});
  figures.push_back({"active_parameters", "active parameters", format_count, one(size.active)});
  figures.push_back({"flops_per_token", "FLOPs per token", format_count, one(flops_of_token(side))});
  return figures;
}

const Figure* find_figure(const std::vector<Figure>& figures, const std::string& key) {
  const auto found = std::ranges::find(figures, key, &Figure::key);
  return found == figures.end() ? nullptr : &*found;
}

/// Of the figures that both have: the second over the first, per block where there are blocks.
std::vector<Figure> ratios(const Side& first, const Side& second) {
  std::vector<Figure> result;
  const auto of_first = figures_of(first);
  for (const auto& figure : figures_of(second)) {
    const Figure* base = find_figure(of_first, figure.key);
    if (!base) continue;
    result.push_back({figure.key, figure.label, [](double ratio) { return fmt::format("{:.3f}", ratio); }, {}});
    for (size_t i = 0; i < base->values.size(); i++) result.back().values.push_back(figure.values.at(i) / base->values[i]);
  }
  return result;
}

std::string cell(const std::vector<Figure>& figures, const std::string& key) {
  const Figure* figure = find_figure(figures, key);
  if (!figure) return "-";
  const auto spread = bench::spread_of(figure->values);
  if (figure->values.size() == 1) return figure->text(spread.median);
  return fmt::format("{} ({} to {})", figure->text(spread.median), figure->text(spread.p10), figure->text(spread.p90));
}

void write(ordered_json& json, const Figure& figure) {
  const auto spread = bench::spread_of(figure.values);
  json[figure.key] = spread.median;
  if (figure.values.size() == 1) return;
  json[figure.key + "_p10"] = spread.p10;
  json[figure.key + "_p90"] = spread.p90;
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
      "\n{} / {}: the ratio of tok/s was between {:.2f} and {:.2f} in different blocks: too wide a spread for a conclusion. Repeat it "
      "on an idle machine, with more --blocks (now {}).\n",
      b.name, a.name, std::ranges::min(ratios), std::ranges::max(ratios), ratios.size());
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

std::string comparison_text(const std::vector<Side>& sides) {
  const Side& first = sides.front();
  std::vector<std::vector<std::string>> rows = {{""}};
  std::vector<std::vector<Figure>> columns;
  for (const auto& side : sides) {
    rows[0].push_back(side.name);
    columns.push_back(figures_of(side));
  }
  std::string below;
  for (size_t i = 1; i < sides.size(); i++) {
    const std::string pair = sides[i].name + " / " + first.name;
    rows[0].push_back(pair);
    columns.push_back(ratios(first, sides[i]));
    const std::string which = sides.size() > 2 ? pair + ", e" : "E";
    std::string equal = fmt::format("\n{}qual (counts within 2 %):\n", which), unequal = "Not equal:\n";
    for (const auto& condition : conditions(first, sides[i]))
      (condition.equal ? equal : unequal) += "  " + text_of(condition) + "\n";
    below += spread_line(first, sides[i]) + equal + unequal;
  }
  for (const auto& figure : columns.front()) {
    rows.push_back({figure.label});
    for (const auto& column : columns) rows.back().push_back(cell(column, figure.key));
  }
  return bench::format_table(rows) + below;
}

ordered_json comparison_row(const Side& side) {
  ordered_json row = {{"name", side.name}, {"config", side.path}, {"block_ms", side.block_ms}, {"mfu", nullptr}};
  for (const auto& figure : figures_of(side)) write(row, figure);
  return row;
}

ordered_json comparison_ratios(const Side& first, const Side& second) {
  ordered_json json;
  for (const auto& figure : ratios(first, second)) write(json["ratio"], figure);
  for (const auto& condition : conditions(first, second)) {
    json["conditions"].push_back(
        {{"name", condition.name}, {"equal", condition.equal}, {"first", condition.first}, {"second", condition.second}});
  }
  return json;
}

}  // namespace scatterlm

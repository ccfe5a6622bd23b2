#include "lib/bench/figure.h"

#include <fmt/format.h>

#include <algorithm>

namespace scatterlm::bench {
namespace {

using nlohmann::ordered_json;

bool counts_flops(const Figure& figure) { return figure.work.flops > 0; }

double speed(const Figure& figure) {
  return counts_flops(figure) ? tflops(figure.work.flops, figure.ms.median) : gbps(figure.work.bytes, figure.ms.median);
}

std::optional<double> ceiling_percent(const Figure& figure, const std::optional<Ceilings>& ceilings) {
  if (!ceilings) return {};
  return 100 * speed(figure) / (counts_flops(figure) ? ceilings->gemm_tflops : 1e3 * ceilings->copy_tbps);
}

std::optional<double> roofline_percent(const Figure& figure) {
  if (!figure.bound_ms) return {};
  return 100 * *figure.bound_ms / figure.ms.median;
}

ordered_json or_null(const std::optional<double>& value) { return value ? ordered_json(*value) : ordered_json(); }

std::string speed_text(const Figure& figure) {
  const double value = speed(figure);
  if (!counts_flops(figure)) return fmt::format("{:.4g} GB/s", value);
  return value < 1 ? fmt::format("{:.4g} GFLOP/s", 1e3 * value) : fmt::format("{:.4g} TFLOP/s", value);
}

std::string percent_text(const std::optional<double>& value) { return value ? fmt::format("{:.0f} %", *value) : "-"; }

}  // namespace

ordered_json to_json(const Figure& figure, const std::optional<Ceilings>& ceilings) {
  ordered_json json = {{"ms", figure.ms.median}, {"p10_ms", figure.ms.p10}, {"p90_ms", figure.ms.p90}};
  json[counts_flops(figure) ? "tflops" : "gbps"] = speed(figure);
  json["ceiling_percent"] = or_null(ceiling_percent(figure, ceilings));
  json["roofline_percent"] = or_null(roofline_percent(figure));
  return json;
}

std::string format_figures(const std::vector<Figure>& figures, const std::optional<Ceilings>& ceilings) {
  std::vector<std::vector<std::string>> rows = {{"", "ms", "p10", "p90", "speed", "of ceiling", "of roofline"}};
  for (const auto& figure : figures) {
    rows.push_back({figure.name, fmt::format("{:.3f}", figure.ms.median), fmt::format("{:.3f}", figure.ms.p10),
                    fmt::format("{:.3f}", figure.ms.p90), speed_text(figure), percent_text(ceiling_percent(figure, ceilings)),
                    percent_text(roofline_percent(figure))});
  }
  return format_table(rows);
}

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.at(0).size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths.at(i) = std::max(widths.at(i), row[i].size());
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i)
      text += i == 0 ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
    text += '\n';
  }
  return text;
}

}  // namespace scatterlm::bench

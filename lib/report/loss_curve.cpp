#include "lib/report/loss_curve.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "lib/io/json.h"
#include "lib/report/metrics.h"
#include "lib/util/error.h"
#include "lib/util/file.h"

namespace scatterlm {

std::optional<LossPoint> point_at_loss(const LossCurve& curve, double loss) {
  const auto reached = std::ranges::find_if(curve, [&](const LossPoint& point) { return point.loss <= loss; });
  if (reached == curve.end()) return std::nullopt;
  if (reached == curve.begin()) return *reached;
  const auto before = std::prev(reached);
  const double part = (before->loss - loss) / (before->loss - reached->loss);
  return LossPoint{std::lerp(before->tokens, reached->tokens, part), loss, std::lerp(before->seconds, reached->seconds, part)};
}

LossCurve mean_curve(const std::vector<LossCurve>& curves) {
  LossCurve mean;
  for (const LossPoint& point : curves.front()) {
    LossPoint sum{point.tokens, 0};
    size_t found = 0;
    for (const LossCurve& curve : curves) {
      const auto same = std::ranges::find(curve, point.tokens, &LossPoint::tokens);
      if (same == curve.end()) break;
      sum.loss += same->loss;
      sum.seconds += same->seconds;
      found++;
    }
    const auto number = static_cast<double>(found);
    if (found == curves.size()) mean.push_back({point.tokens, sum.loss / number, sum.seconds / number});
  }
  return mean;
}

RunResult read_result(const std::string& run_dir) {
  const std::string path = run_dir + "/metrics.jsonl", content = read_file(path);
  RunResult result;
  int64_t number = 0;
  StepTime time;
  std::string_view text = content;
  for (size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1)) {
    const std::string where = fmt::format("{}:{}", path, ++number);
    const auto line = parse_json(text.substr(0, end), where);
    const JsonFields fields{line, where};
    const int64_t step = fields.count("step");
    time.add(step, fields.number("step_ms"));
    result.load_max_mean.reset();
    result.dead_experts = 0;
    for (const auto& router : fields.list("routers")) result.dead_experts += JsonFields{router, where}.count("dead_experts");
    if (!fields.list("routers").empty()) result.load_max_mean = fields.number("load_max_mean");
    result.nonfinite_steps = fields.count("nonfinite_steps");
    if (!line.contains("val_loss") || !line["val_loss"].is_number()) continue;
    result.curve.push_back({static_cast<double>(fields.count("tokens")), fields.number("val_loss"), time.seconds});
    result.bits_per_byte.reset();
    if (line.contains("val_bpb") && line["val_bpb"].is_number()) result.bits_per_byte = fields.number("val_bpb");
  }
  return result;
}

}  // namespace scatterlm

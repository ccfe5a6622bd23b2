// Validation losses of a run over its tokens and its time, and where a curve reaches a given loss.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace scatterlm {

struct LossPoint {
  double tokens;       ///< trained so far
  double loss;         ///< nats per token
  double seconds = 0;  ///< in training steps so far, without evaluations and checkpoints

  bool operator==(const LossPoint&) const = default;
};

/// By rising number of tokens.
using LossCurve = std::vector<LossPoint>;

/// Where the curve is at `loss` for the first time, between two evaluations by linear interpolation. The first evaluation if
/// that is low enough already; nothing if none is.
std::optional<LossPoint> point_at_loss(const LossCurve& curve, double loss);

/// The mean loss and time of curves that were evaluated after the same numbers of tokens, at those evaluations that all have.
LossCurve mean_curve(const std::vector<LossCurve>& curves);

/// What the metrics.jsonl of a run says.
struct RunResult {
  LossCurve curve;                      ///< validation loss
  std::optional<double> bits_per_byte;  ///< of the last evaluation
  std::optional<double> load_max_mean;  ///< of the last line: largest load of an expert over the mean; none without routers
  int64_t dead_experts = 0;             ///< of the last line, over all routers
  int64_t nonfinite_steps = 0;
};

/// Throws Error naming file and line for what is no line of metrics.jsonl.
RunResult read_result(const std::string& run_dir);

}  // namespace scatterlm

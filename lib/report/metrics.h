// runs/NAME/metrics.jsonl: one JSON object per reported step.
#pragma once
#include <cstdint>
#include <string>

#include "lib/train/step_report.h"

namespace scatterlm {

/// One line without its end. Keys: step, tokens, loss, aux_loss, z_loss, grad_norm, lr, step_ms, tok_s, mfu, mem_gib,
/// alloc_retries, load_max_mean, val_loss, val_bpb, nonfinite_steps, save_stall_ms, comm: {exposed_ms, reduce_scatter_ms,
/// reduce_scatter_gbps, all_gather_ms, all_gather_gbps} per step (GB/s through the link of each rank; null for one rank), and
/// routers: [{name, load_max_mean, dead_experts, entropy, drop, fill, aux_loss, z_loss}]. Where tasks were
/// evaluated also task/NAME/acc, task/NAME/acc_stderr, task/NAME/acc_norm and task/NAME/acc_norm_stderr of each. A number that
/// is not finite or not known is null; the others are written with as many digits as reading them back exactly takes.
std::string metrics_line(const StepReport& report);

/// Time in training steps, without evaluations and checkpoints, from the lines of a file in their order.
struct StepTime {
  int64_t step = 0;    ///< of the last line; before the first one, where its steps begin
  double seconds = 0;  ///< up to there

  /// `step_ms`: mean of the steps since the line before.
  void add(int64_t line_step, double step_ms) {
    seconds += step_ms / 1000 * static_cast<double>(line_step - step);
    step = line_step;
  }
};

class MetricsWriter {
 public:
  /// Appends to the file. Lines of steps after resume_step are removed first: the run takes them again. So is a last line that
  /// a killed process left unfinished. Throws Error "PATH: cannot write: REASON".
  MetricsWriter(std::string path, int64_t resume_step);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  void write(const StepReport& report);

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace scatterlm

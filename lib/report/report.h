// Everything that a training run says about its steps: console, metrics.jsonl, TensorBoard.
#pragma once
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

#include "lib/config/config.h"
#include "lib/report/console.h"
#include "lib/report/metrics.h"
#include "lib/report/router_health.h"
#include "lib/report/tensorboard.h"
#include "lib/train/execution_setup.h"
#include "lib/train/flops.h"
#include "lib/train/step_report.h"
#include "lib/train/tracer.h"
#include "lib/train/training_loop.h"

namespace scatterlm {

/// What MFU is a share of; none on a CPU, in float32 and on an unknown GPU.
std::optional<PeakFlops> peak_of(const ExecutionSetup& numerics);

/// "done 610/610 | 2.5M tokens | loss 2.3012 | validation 2.0513 | mem 0.9 GiB | 1m52s | runs/quickstart"
std::string summary_line(const StepReport& last, double seconds, const std::string& run_dir);

class Report final : public TrainingObserver {
 public:
  /// In a folder that is there. What was reported there of steps after resume_step is forgotten: the run takes them again.
  Report(std::string run_dir, const Config& config, const ExecutionSetup& numerics, int64_t resume_step,
         std::FILE* out = stdout);

  /// Adds rate, utilisation and memory to what the trainer knows (step_ms included), and reports it everywhere. The first time
  /// on a GPU after two steps or more, the log says how much memory they took, and how much was planned.
  void step(StepReport report) override;

  /// After every step: how far the run has come, on a terminal, at most ten times a second. The rate is that of the last step
  /// line.
  void progress(int64_t step) override;

  /// The summary of a trace: on the console, and in a file next to the trace.
  void trace(const Trace& trace) override;

  /// Where an untrained model stands, on the console.
  void untrained(const StepReport& report) override;

  /// Ends the run on the console.
  void summary() override;

 private:
  void write_figures(const StepReport& report);
  void write_tensorboard(const StepReport& report);

  std::string run_dir_;
  at::Device device_;
  bool balanced_by_loss_;
  RouterHealth router_health_;
  double tokens_per_step_, flops_per_token_;
  std::optional<double> planned_gib_;  ///< until the measured peak has been compared with it
  int64_t total_steps_;
  std::optional<double> peak_flops_;  ///< of all ranks, per second
  Console console_;
  MetricsWriter metrics_;
  std::optional<TensorBoardWriter> tensorboard_;
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_progress_ = start_;
  int64_t first_step_;  ///< that the run starts after
  std::optional<StepReport> last_;
};

}  // namespace scatterlm

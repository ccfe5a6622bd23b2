// What a run says on stdout: start-up phases, step lines, a summary.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "lib/train/step_report.h"

namespace scatterlm {

/// "step 100/610 | loss 2.8123 | aux 1.012 | grad 0.831 | lr 2.99e-03 | 182 ms | 22.5k tok/s | 95.4 GFLOP/s | mem 0.9 GiB |
/// max load 1.42 | eta 1m32s", then z-loss, least and largest maximal load of the layers, dead experts and mean entropy of the
/// routers. The maximal load is that of the busiest expert over the mean load of all. Scripts read these lines: order and names
/// stay. `mfu 41.2%` takes the place of the rate where the peak is known, `skipped 3` follows the loss where steps were not
/// finite, a dense model has no router fields, and `aux` is there only if the training has that loss. What does not fit into
/// `width` columns is left out, least important first.
std::string step_line(const StepReport& report, int64_t width);

/// "validation 100/610 | loss 2.5123 | perplexity 12.3 | bpb 3.6245" in bits per byte, where they are known; needs val_loss.
std::string validation_line(const StepReport& report);

/// "task 100/610 | hellaswag_val | acc 0.2859 | acc_norm 0.2955"
std::string task_line(const StepReport& report, const TaskResult& task);

/// How far a run has come between two step lines; rate and time of a step are 0 where no step has been timed yet.
struct TrainingProgress {
  int64_t step = 0, total_steps = 0;
  double step_ms = 0, tok_s = 0;
};

/// "training 37/610 | 22.5k tok/s | eta 1m32s"
std::string progress_line(const TrainingProgress& progress, int64_t width);

/// Lines fit a terminal, whose width is asked for each; a pipe gets them in full. Every line is flushed.
class Console {
 public:
  explicit Console(std::FILE* out = stdout) : out_(out) {}
  ~Console();  ///< removes the progress line, so that an error starts on its own
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  void step(const StepReport& report);        ///< and what an evaluation said, if there was one
  void evaluation(const StepReport& report);  ///< the lines of that alone
  void print(const std::string& line);
  /// On a terminal a last line that the next call rewrites and any other line replaces; nothing in a pipe.
  void progress(const TrainingProgress& progress);

 private:
  void clear_progress();

  std::FILE* out_;
  bool progress_shown_ = false;
};

/// Start-up, one line a phase with the time it took:
///
///     Phases phases;
///     phases.done("model", "1.2M parameters");   // [0.42 s] model: 1.2M parameters
class Phases {
 public:
  explicit Phases(std::FILE* out = stdout) : console_(out) {}
  void done(const std::string& phase, const std::string& result);

 private:
  using Clock = std::chrono::steady_clock;

  Console console_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace scatterlm

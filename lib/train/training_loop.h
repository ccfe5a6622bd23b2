// A run from where its state stands to its end: steps, and when to report, evaluate, save and stop.
#pragma once
#include <optional>
#include <string>

#include "lib/data/loader.h"
#include "lib/tasks/task.h"
#include "lib/train/run_folder.h"
#include "lib/train/step_report.h"
#include "lib/train/stop.h"
#include "lib/train/tracer.h"
#include "lib/train/training_state.h"
#include "lib/util/error.h"

namespace scatterlm {

/// Told what a run does. Rank 0 has one.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  /// What an evaluation says before the first step; only that is filled in, and total_steps.
  virtual void untrained(const StepReport& report) = 0;
  /// After every step, before it is known whether anything else is due.
  virtual void progress(int64_t step) = 0;
  virtual void step(StepReport report) = 0;
  virtual void trace(const Trace& trace) = 0;
  /// All steps are made.
  virtual void summary() = 0;
};

/// What a run is evaluated on.
struct EvaluationData {
  EvalReader* validation = nullptr;  ///< none: no validation loss
  at::Tensor token_bytes_V{};        ///< of bytes_of_tokens()
  std::vector<Task> tasks{};

  bool empty() const { return !validation && tasks.empty(); }
};

struct TrainingRun {
  const std::string& run_dir;  ///< where checkpoints and traces go
  const StopRequest& stop;
  const EvaluationData& evaluation;
  TrainingObserver* observer = nullptr;  ///< none: nothing is reported (ranks other than 0)
  const RunLock* lock = nullptr;  ///< of run_dir, held by the rank with the observer; checked before each report and save
};

/// Trains until all steps are made (kExitDone), or until this rank or another one is asked to stop, after saving
/// (kExitRestart). Saves and then throws Error when train.max_nonfinite_steps in a row were not finite. All ranks call it.
ExitCode train(TrainingState& state, const TrainingRun& run);

}  // namespace scatterlm

// One model of a comparison of speed: it trains in memory, from its initial weights, and writes nothing.
#pragma once
#include "lib/train/execution_setup.h"
#include "lib/train/stop.h"
#include "lib/train/trainer.h"

namespace scatterlm {

class SpeedRun {
 public:
  SpeedRun(const Config& config, const ExecutionSetup& numerics);
  SpeedRun(const SpeedRun&) = delete;
  SpeedRun& operator=(const SpeedRun&) = delete;

  /// Mean wall time of `steps` steps, after one that is not counted: it brings caches and allocator back from the other model.
  /// Throws Error if a loss or gradient was not finite (such a step leaves the update out) or if asked to stop.
  double block_ms(int64_t steps, const StopRequest& stop);

 private:
  void wait() const;

  Config config_;
  std::unique_ptr<Comm> comm_;
  Loader loader_;
  TrainingState state_;
  Trainer trainer_;
};

}  // namespace scatterlm

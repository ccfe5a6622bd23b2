#include "lib/train/speed_run.h"

#include <ATen/DeviceAccelerator.h>

#include "lib/train/checkpointing.h"
#include "lib/train/step_clock.h"
#include "lib/util/error.h"

namespace scatterlm {

SpeedRun::SpeedRun(const Config& config, const ExecutionSetup& numerics)
    : config_(config),
      comm_(make_single_comm()),
      loader_(config_.data, config_.model.vocab_size, config_.train.sequence_length, config_.train.seed, comm_->rank(),
              comm_->world()),
      state_(config_, numerics.options(), *comm_, loader_),
      trainer_(state_) {
  begin_training(std::nullopt, std::nullopt, state_);
}

void SpeedRun::wait() const {
  if (state_.model.device().is_cuda()) at::accelerator::synchronizeDevice(state_.model.device().index());
}

double SpeedRun::block_ms(int64_t steps, const StopRequest& stop) {
  StepClock clock;
  for (int64_t i = 0; i <= steps; i++) {
    trainer_.step();
    if (const auto reason = stop.reason(); !reason.empty()) fail("{}: stopped, nothing was measured", reason);
    if (i == 0) {
      wait();
      clock.restart();
    } else {
      clock.count_step();
    }
  }
  wait();
  const double ms = clock.mean_ms();
  const auto report = trainer_.report();
  if (report.nonfinite_steps > 0)
    fail("{}: {} of {} steps had a loss or gradient that is not finite{}; lower optim.lr or raise optim.warmup_steps",
         config_.run.name, report.nonfinite_steps, report.step, report.first_broken_router());
  return ms;
}

}  // namespace scatterlm

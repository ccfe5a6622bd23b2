#pragma once
#include <chrono>
#include <cstdint>

namespace scatterlm {

/// Mean wall time of training steps. On a GPU steps only enqueue, so read the clock right after something that waited for the
/// device, and restart it after work that is not training.
class StepClock {
 public:
  void restart() {
    start_ = Clock::now();
    steps_ = 0;
  }
  void count_step() { steps_++; }
  int64_t steps() const { return steps_; }
  /// Of the steps since the last restart.
  double mean_ms() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start_).count() / static_cast<double>(steps_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
  int64_t steps_ = 0;
};

}  // namespace scatterlm

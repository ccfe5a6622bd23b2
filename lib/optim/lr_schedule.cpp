#include "lib/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace scatterlm {

double learning_rate(const OptimConfig& config, int64_t step, int64_t total) {
  if (step <= config.warmup_steps) return config.lr * static_cast<double>(step) / static_cast<double>(config.warmup_steps);
  const int64_t decay_from = config.schedule == Schedule::kWsd ? total - config.decay_steps : config.warmup_steps;
  const double length = static_cast<double>(std::max<int64_t>(total - decay_from, 1));
  const double progress = std::clamp(static_cast<double>(step - decay_from) / length, 0.0, 1.0);
  const double low = config.min_lr_ratio;
  switch (config.schedule) {
    case Schedule::kConstant: return config.lr;
    case Schedule::kCosine: return config.lr * (low + (1 - low) * 0.5 * (1 + std::cos(std::numbers::pi * progress)));
    case Schedule::kLinear:
    case Schedule::kWsd: break;
  }
  return config.lr * (1 - (1 - low) * progress);
}

}  // namespace scatterlm

#pragma once
#include <cstdint>

#include "lib/config/config.h"

namespace scatterlm {

/// Learning rate of optimiser step `step` (1 = first) of `total`: linear warm-up to the peak, then the schedule down to
/// min_lr_ratio * peak, which the last step has.
double learning_rate(const OptimConfig& config, int64_t step, int64_t total);

}  // namespace scatterlm

#pragma once
#include <cstdint>

#include "lib/config/config.h"

namespace scatterlm {

/// How the sequences of an optimiser step are dealt out: to micro-batches, and of each to the ranks.
struct BatchPlan {
  /// Throws Error (exit code 2) naming the key if the ranks, or the micro-batches of a rank, cannot share them equally.
  explicit BatchPlan(const TrainConfig& config, int64_t ranks = 1);

  int64_t sequences;    ///< of a step, over all ranks and micro-batches
  int64_t per_pass;     ///< of one forward pass on one rank
  int64_t micro_batch;  ///< of one micro-batch, over all ranks
};

}  // namespace scatterlm

// Whether two models are of one size, and how wide the experts or MLPs of one would have to be for that.
#pragma once
#include <string>

#include "lib/report/comparison.h"

namespace scatterlm {

enum class MatchedSize { kActiveFlops, kActiveParameters, kTotalParameters };

/// Throws Error (exit code 2) if the size of `side` differs from that of `first` by more than 2 %. The message names the value
/// of model.moe.moe_intermediate_size, or without MoE layers of model.dense.intermediate_size, a multiple of 8, that comes
/// closest.
void require_same_size(const Side& first, const Side& side, MatchedSize size);

}  // namespace scatterlm

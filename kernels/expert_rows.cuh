// What stands in the arrays of ExpertRows before the first expert and behind the last.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/grouped_gemm.h"

namespace scatterlm::kernels {

/// One thread calls; others write offsets_E1[e + 1] and tiles_E3[e + 1] of every expert.
__device__ __forceinline__ void begin_expert_rows(int num_experts, int32_t* offsets_E1, int32_t* tiles_E3) {
  offsets_E1[0] = tiles_E3[0] = 0;
  int32_t* counters = ExpertRows{offsets_E1, tiles_E3, num_experts, 0}.tile_counters();
  counters[0] = counters[1] = 0;
}

}  // namespace scatterlm::kernels

// Where the rows of each expert begin, from their numbers.
#pragma once
#include "kernels/device/ceil_div.h"
#include "kernels/device/ptx.cuh"
#include "kernels/device/warp.cuh"
#include "kernels/grouped_gemm.h"

namespace scatterlm::kernels {

/// visit(e, first row of e) for every expert; count(e) is its number of rows. One warp of each block calls; that of block 0
/// also writes the offsets (grouped_gemm.h).
template <class Count, class Visit>
__device__ __forceinline__ void place_experts(int num_experts, int32_t* offsets_E1, int32_t* tiles_E3, Count&& count,
                                              Visit&& visit) {
  const int lane = threadIdx.x % 32;
  int rows = 0, tiles = 0;  // of the experts before this group of 32
  for (int group = 0; group < num_experts; group += 32) {
    const int e = group + lane, total = e < num_experts ? count(e) : 0;
    const int row_sum = warp_inclusive_sum(total), tile_sum = warp_inclusive_sum(ceil_div(total, kTileRows));
    if (e < num_experts) {
      visit(e, rows + row_sum - total);
      if (blockIdx.x == 0) {
        offsets_E1[e + 1] = rows + row_sum;
        tiles_E3[e + 1] = tiles + tile_sum;
      }
    }
    rows += __shfl_sync(~0u, row_sum, 31);
    tiles += __shfl_sync(~0u, tile_sum, 31);
  }
  if (blockIdx.x == 0 && lane == 0) offsets_E1[0] = tiles_E3[0] = tiles_E3[num_experts + 1] = tiles_E3[num_experts + 2] = 0;
}

}  // namespace scatterlm::kernels

// Gradients of expert weights: dW[e] = sum over the expert's rows of A[row]^T B[row], tiles as in tile.h; rows are the k of the
// product. A tile goes from registers to memory: it is stored once after all rows of an expert.
#include <algorithm>

#include "kernels/device/launch.cuh"
#include "kernels/grouped_gemm/portable/launch.h"
#include "kernels/grouped_gemm/portable/multiply.cuh"
#include "kernels/grouped_gemm/tile_scheduler.h"
#include "kernels/grouped_gemm/update_pair.cuh"

namespace scatterlm::kernels::portable {
namespace {

struct WgradParams {
  WgradArgs args;
  int m_tiles, n_tiles;
};

__global__ void __launch_bounds__(kThreads, kBlocksPerSm) wgrad_kernel(const __grid_constant__ WgradParams p) {
  const WgradArgs& args = p.args;
  const int m = static_cast<int>(args.m), n = static_cast<int>(args.n);
  const uint32_t shared = shared_address(dynamic_shared<void>());
  const WgradSchedule schedule(args.experts.offsets_E1, static_cast<int>(args.experts.num_experts), p.m_tiles, p.n_tiles);
  WgradTile tile;
  for (int number = blockIdx.x; schedule.find(number, tile); number += gridDim.x) {
    if (tile.row == tile.row_end && args.update == GradientUpdate::kAdd) continue;
    const int first_row = tile.m_tile * kTileRows, first_column = tile.n_tile * kTileColumns;
    RowsAsK<AsA, kTileRows> a(args.a, m, args.a_rows_R, tile.row, tile.row_end, first_row);
    RowsAsK<AsB, kTileColumns> b(args.b, n, args.b_rows_R, tile.row, tile.row_end, first_column);
    Accumulators acc;
    multiply(acc, a, b, ceil_div(tile.row_end - tile.row, kBlockK), shared);
    acc.for_pairs([&](int i, int j, float x, float y) {
      const int row = first_row + i, column = first_column + j;
      if (row < m && column < n) {
        const int64_t at = (int64_t{tile.expert} * m + row) * n + column;
        update_pair(args.dw, args.dw_type, args.update, at, x, y);
      }
    });
  }
}

}  // namespace

void wgrad(const WgradArgs& args, cudaStream_t stream) {
  const WgradParams params{.args = args,
                           .m_tiles = static_cast<int>(ceil_div(args.m, kTileRows)),
                           .n_tiles = static_cast<int>(ceil_div(args.n, kTileColumns))};
  const int64_t tiles = args.experts.num_experts * params.m_tiles * params.n_tiles;
  launch("grouped_gemm_wgrad", wgrad_kernel, std::min<int64_t>(int64_t{args.num_sms} * kBlocksPerSm, tiles), kThreads,
         kSharedBytes, params, stream);
}

}  // namespace scatterlm::kernels::portable

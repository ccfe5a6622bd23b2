// Grouped GEMM over rows: C[m, :] = A[row(m), :] B[e(m)]. Blocks walk tiles (tile_scheduler.h); a finished tile goes as bf16
// through shared memory, [kTileRows][kTileColumns], so that an epilogue sees chunks of eight neighbouring columns.
#pragma once
#include <algorithm>

#include "kernels/device/launch.cuh"
#include "kernels/grouped_gemm/portable/launch.h"
#include "kernels/grouped_gemm/portable/multiply.cuh"
#include "kernels/grouped_gemm/tile_scheduler.h"

namespace scatterlm::kernels::portable {

template <class Epilogue>
struct RowsParams {
  const void* a;
  const int32_t* a_rows_R;  ///< nullptr: expert order
  const void* b;
  const int32_t* offsets_E1;
  const int32_t* tiles_E3;
  int num_experts, n_tiles, n, k;
  const void* bias;  ///< [E, kHalves n]; nullptr: none
  Epilogue epilogue;
};

/// B [E, kHalves n, k]. Two halves are the gate and the up rows of W1, of which a tile has as many.
template <int kHalves>
struct WeightAsStored {
  using Operand = RowsAlongK<AsB, kTileColumns>;
  template <class Params>
  __device__ static Operand operand(const Params& p, const RowTile& tile) {
    constexpr int kTileWidth = kTileColumns / kHalves;
    return {p.b, p.k, [&](int i) {
              const int half = i / kTileWidth, column = min(tile.n_tile * kTileWidth + i % kTileWidth, p.n - 1);
              return (int64_t{tile.expert} * kHalves + half) * p.n + column;
            }};
  }

  template <class Params>
  __device__ static void add_bias(Accumulators& acc, const Params& p, const RowTile& tile) {
    if (!p.bias) return;
    constexpr int kTileWidth = kTileColumns / kHalves;
    const int in_tile = Accumulators::first_column();  // a warp's columns are all of one half
    const int column = tile.n_tile * kTileWidth + in_tile % kTileWidth + static_cast<int>(threadIdx.x % 4) * 2;
    const int64_t row = int64_t{tile.expert} * kHalves + in_tile / kTileWidth;
    const auto* pairs = reinterpret_cast<const uint32_t*>(static_cast<const char*>(p.bias) + (row * p.n + column) * 2);
#pragma unroll
    for (int j = 0; j < kWarpTile / 8; ++j) {
      if (column + j * 8 >= p.n) return;
      const uint32_t pair = __ldg(pairs + j * 4);
      acc.add_to_columns(j, low_bf16(pair), high_bf16(pair));
    }
  }
};

/// B [E, k, n]. Backward only, so without a bias.
struct WeightTransposed {
  using Operand = RowsAsK<AsB, kTileColumns>;
  template <class Params>
  __device__ static Operand operand(const Params& p, const RowTile& tile) {
    return {
        static_cast<const char*>(p.b) + int64_t{tile.expert} * p.k * p.n * 2, p.n, nullptr, 0, p.k, tile.n_tile * kTileColumns};
  }
  template <class Params>
  __device__ static void add_bias(Accumulators&, const Params&, const RowTile&) {}
};

template <class Weight, class Epilogue>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm) rows_kernel(const __grid_constant__ RowsParams<Epilogue> p) {
  const uint32_t shared = shared_address(dynamic_shared<void>());
  const int num_blocks = ceil_div(p.k, kBlockK);
  RowSchedule schedule(p.offsets_E1, p.tiles_E3, p.num_experts, p.n_tiles);
  RowTile tile;
  for (int number = blockIdx.x; schedule.find(number, tile); number += gridDim.x) {
    RowsAlongK<AsA, kTileRows> a(p.a, p.k, [&](int i) {
      const int row = min(tile.row + i, tile.row_end - 1);
      return p.a_rows_R ? __ldg(p.a_rows_R + row) : row;
    });
    auto b = Weight::operand(p, tile);
    Accumulators acc;
    multiply(acc, a, b, num_blocks, shared);
    Weight::add_bias(acc, p, tile);
    acc.for_pairs([&](int row, int column, float x, float y) {
      store_shared(shared + swizzled<kTileColumns * 2>(row, column / 8) + column % 8 * 2, pack_bf16(x, y));
    });
    __syncthreads();
    p.epilogue.store(tile, shared);
    __syncthreads();  // the next tile is loaded over this one
  }
}

template <class Weight, class Epilogue>
void launch_rows(const char* op, const GroupedProduct& product, const void* bias, int columns_per_tile,
                 const Epilogue& epilogue, cudaStream_t stream) {
  const int64_t n_tiles = ceil_div(product.n, columns_per_tile);
  const RowsParams<Epilogue> params{.a = product.a,
                                    .a_rows_R = product.a_rows_R,
                                    .b = product.b,
                                    .offsets_E1 = product.experts.offsets_E1,
                                    .tiles_E3 = product.experts.tiles_E3,
                                    .num_experts = static_cast<int>(product.experts.num_experts),
                                    .n_tiles = static_cast<int>(n_tiles),
                                    .n = static_cast<int>(product.n),
                                    .k = static_cast<int>(product.k),
                                    .bias = bias,
                                    .epilogue = epilogue};
  const int64_t most_tiles = product.experts.most_tiles() * n_tiles;
  launch(op, rows_kernel<Weight, Epilogue>, std::min<int64_t>(int64_t{product.num_sms} * kBlocksPerSm, most_tiles), kThreads,
         kSharedBytes, params, stream);
}

}  // namespace scatterlm::kernels::portable

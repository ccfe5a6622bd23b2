// One tile (tile.h): all threads fill the ring, and each warp multiplies its 64 x 64 from it. A warp tile of this size takes 8
// matrix loads to 32 products; at 32 x 64 the loads already take as long as the products.
#pragma once
#include "kernels/grouped_gemm/portable/operands.cuh"

namespace scatterlm::kernels::portable {

/// What a thread holds of a tile: d[i][j] is part i of 16 rows, j of 8 columns of its warp, as mma.cuh says.
struct Accumulators {
  float d[4][8][4];

  __device__ static int first_row() { return threadIdx.x / 32 % kWarpsAlongRows * kWarpTile; }
  __device__ static int first_column() { return threadIdx.x / 32 / kWarpsAlongRows * kWarpTile; }

  /// To both columns that this thread has of part j, in every row.
  __device__ void add_to_columns(int j, float x, float y) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      d[i][j][0] += x, d[i][j][1] += y;
      d[i][j][2] += x, d[i][j][3] += y;
    }
  }

  /// visit(row, column, value, value of column + 1).
  template <class Visit>
  __device__ void for_pairs(Visit&& visit) const {
    const int row = first_row() + threadIdx.x % 32 / 4, column = first_column() + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        visit(row + i * 16, column + j * 8, d[i][j][0], d[i][j][1]);
        visit(row + i * 16 + 8, column + j * 8, d[i][j][2], d[i][j][3]);
      }
  }
};

/// What a warp tile needs of 16 k.
struct Fragments {
  uint32_t a[4][4], b[4][4];

  template <class A, class B>
  __device__ __forceinline__ void load(uint32_t a_at, uint32_t b_at, int k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) A::fragment(a[i], a_at, i, k);
#pragma unroll
    for (int i = 0; i < 4; ++i) B::fragment(b[i], b_at, i, k);
  }

  __device__ __forceinline__ void multiply(Accumulators& acc) const {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) mma_m16n8k16(acc.d[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
  }
};

/// The product of two operands over `num_blocks` blocks of k. On return the ring is free, for its next user.
template <class A, class B>
__device__ __forceinline__ void multiply(Accumulators& acc, A& a, B& b, int num_blocks, uint32_t ring) {
  const auto stage_of = [&](int block) { return ring + block % kStages * kStageBytes; };
  const auto load = [&](int block) {
    if (block < num_blocks) {
      a.load(stage_of(block), block);
      b.load(stage_of(block) + A::kBytes, block);
    }
    copies_commit();  // also when empty: the count of groups is the count of blocks
  };
  const auto wait_for_next = [] {
    copies_wait<kStages - 2>();
    __syncthreads();  // everyone's copies are in, and everyone has read the stage that is filled next
  };
  const uint32_t a_at = A::fragments_at(Accumulators::first_row());
  const uint32_t b_at = B::fragments_at(Accumulators::first_column()) + A::kBytes;
  acc = {};
#pragma unroll
  for (int block = 0; block < kStages - 1; ++block) load(block);
  wait_for_next();
  constexpr int kStepsPerBlock = kBlockK / 16;
  Fragments fragments[2];  // of one step while those of the next are on their way
  fragments[0].load<A, B>(ring + a_at, ring + b_at, 0);
  for (int block = 0; block < num_blocks; ++block) {
#pragma unroll
    for (int step = 0; step < kStepsPerBlock; ++step) {
      if (step == kStepsPerBlock - 1) wait_for_next();
      const uint32_t stage = stage_of(step == kStepsPerBlock - 1 ? block + 1 : block);
      fragments[(step + 1) % 2].load<A, B>(stage + a_at, stage + b_at, (step + 1) * 16 % kBlockK);
      if (step == 0) load(block + kStages - 1);
      fragments[step % 2].multiply(acc);
    }
  }
  __syncthreads();
}

}  // namespace scatterlm::kernels::portable

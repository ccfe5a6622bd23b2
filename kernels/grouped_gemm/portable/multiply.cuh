// One tile [128, 128]: eight warps, 32 x 64 each, a ring of stages of 32 k that all threads fill and all read.
#pragma once
#include "kernels/grouped_gemm/portable/operands.cuh"

namespace scatterlm::kernels::portable {

constexpr int kStages = 4;
constexpr uint32_t kStageBytes = 2 * kOperandBytes;
/// 64 KB: two blocks on a multiprocessor of sm_80 and of sm_90, one where a block can have 99 KB (sm_86, sm_89, sm_120).
constexpr uint32_t kSharedBytes = kStages * kStageBytes;
constexpr int kBlocksPerSm = 2;

/// What a thread holds of a tile: d[i][j] is part i of 16 rows, j of 8 columns of its warp, as mma.cuh says.
struct Accumulators {
  float d[2][8][4];

  __device__ static int first_row() { return threadIdx.x / 32 % 4 * 32; }
  __device__ static int first_column() { return threadIdx.x / 128 * 64; }

  /// visit(row, column, value, value of column + 1).
  template <class Visit>
  __device__ void for_pairs(Visit&& visit) const {
    const int row = first_row() + threadIdx.x % 32 / 4, column = first_column() + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        visit(row + i * 16, column + j * 8, d[i][j][0], d[i][j][1]);
        visit(row + i * 16 + 8, column + j * 8, d[i][j][2], d[i][j][3]);
      }
  }
};

template <class A, class B>
__device__ __forceinline__ void multiply_stage(Accumulators& acc, uint32_t a_at, uint32_t b_at) {
#pragma unroll
  for (int k = 0; k < kBlockK; k += 16) {
    uint32_t a[2][4], b[4][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) A::fragment(a[i], a_at, Accumulators::first_row() + i * 16, k);
#pragma unroll
    for (int j = 0; j < 4; ++j) B::fragment(b[j], b_at, Accumulators::first_column() + j * 16, k);
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) mma_m16n8k16(acc.d[i][j], a[i], b[j / 2][j % 2], b[j / 2][j % 2 + 2]);
  }
}

/// The product of two operands over `num_blocks` blocks of k. On return the ring is free, for its next user.
template <class A, class B>
__device__ __forceinline__ void multiply(Accumulators& acc, A& a, B& b, int num_blocks, uint32_t ring) {
  const auto load = [&](int block) {
    if (block < num_blocks) {
      const uint32_t stage = ring + block % kStages * kStageBytes;
      a.load(stage, block);
      b.load(stage + kOperandBytes, block);
    }
    copies_commit();  // also when empty: the count of groups is the count of blocks
  };
  acc = {};
#pragma unroll
  for (int block = 0; block < kStages - 1; ++block) load(block);
  for (int block = 0; block < num_blocks; ++block) {
    copies_wait<kStages - 2>();
    __syncthreads();  // everyone's copies of this block are in, and everyone has read the stage that is filled next
    load(block + kStages - 1);
    const uint32_t stage = ring + block % kStages * kStageBytes;
    multiply_stage<A, B>(acc, stage, stage + kOperandBytes);
  }
  __syncthreads();
}

}  // namespace scatterlm::kernels::portable

// Rows that groups of threads reduce: a group is a power of two of threads, from one lane of a warp to a whole block.
#pragma once
#include <cstdint>

#include "kernels/device/ptx.cuh"

namespace scatterlm::kernels {

/// Threads of a block, unless one of its groups needs more.
constexpr int kRowThreads = 256;

struct RowGroup {
  int size;    ///< threads
  int index;   ///< of the group in its block
  int thread;  ///< of this thread in its group

  __device__ explicit RowGroup(int size)
      : size(size), index(static_cast<int>(threadIdx.x) / size), thread(static_cast<int>(threadIdx.x) % size) {}
  __device__ int per_block() const { return static_cast<int>(blockDim.x) / size; }

  /// Over `lanes` neighbouring lanes, a power of two up to 32; each gets the same bits. All lanes of the warp take part.
  __device__ static float sum_of_lanes(float x, int lanes) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(~0u, x, step);
      if (step < lanes) x += other;
    }
    return x;
  }

  /// Over the group, in a fixed order; each thread gets the same bits. `shared` has kSharedFloats. All threads of the block
  /// take part, with `turn` counting their calls: calls that follow each other use different halves of `shared`, so one barrier
  /// each is enough.
  __device__ float sum(float x, float* shared, int turn) const {
    x = sum_of_lanes(x, size);
    if (size <= 32) return x;
    float* of_warps = shared + turn % 2 * (kSharedFloats / 2);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
#pragma unroll
    for (int other = 0; other < kMaxGroupsOfWarps; ++other)  // a barrier that is no constant would take all 16 of the block
      if (other == index) named_barrier_sync(1 + other, size);
    x = 0;
    for (int warp = 0; warp < size / 32; ++warp) x += of_warps[index * (size / 32) + warp];
    return x;
  }

  static constexpr int kMaxThreads = 512;
  static constexpr int kMaxGroupsOfWarps = kMaxThreads / 64;  ///< groups of more than one warp in a block
  static constexpr int kSharedFloats = 2 * kMaxThreads / 32;
};

/// Smallest size of a group, from `smallest` (a power of two) on, in which no thread has more than `per_thread` of the items.
inline int64_t group_threads(int64_t items, int64_t per_thread, int64_t smallest = 1) {
  while (smallest * per_thread < items) smallest *= 2;
  return smallest;
}

}  // namespace scatterlm::kernels

// Reductions over a warp, of which every lane gets the same bits; sums and bits across its lanes.
#pragma once
#include <cstdint>

namespace scatterlm::kernels {

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  return x;
}

/// Over the lanes up to this one.
__device__ __forceinline__ int warp_inclusive_sum(int x) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int lower = __shfl_up_sync(~0u, x, step);
    if (static_cast<int>(threadIdx.x % 32) >= step) x += lower;
  }
  return x;
}

/// Bit i of lane l goes to bit l of lane i: blocks of 16 x 16 bits change places, in each of them blocks of 8 x 8, and so on.
__device__ __forceinline__ uint32_t warp_transpose(uint32_t x) {
  uint32_t low = 0x0000FFFF;  // columns of the left blocks
#pragma unroll
  for (int step = 16; step > 0; step /= 2, low ^= low << step) {
    const uint32_t other = __shfl_xor_sync(~0u, x, step);
    x = threadIdx.x & step ? (other >> step & low) | (x & ~low) : (x & low) | (other << step & ~low);
  }
  return x;
}

}  // namespace scatterlm::kernels

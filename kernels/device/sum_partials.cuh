// The last step of a weight's gradient: the sum over blocks of their partial sums, in a fixed order.
#pragma once
#include "kernels/device/ceil_div.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/vec8.cuh"

namespace scatterlm::kernels {

template <class T>
struct SumPartialsParams {
  const float* partials;  ///< [num_partials, width]
  T* out;                 ///< [width]
  int64_t num_partials, width;
};

constexpr int kSumPartialsThreads = 256;

/// A block has 32 columns; its warps share the rows.
template <class T>
__global__ void __launch_bounds__(kSumPartialsThreads) sum_partials_kernel(const __grid_constant__ SumPartialsParams<T> p) {
  constexpr int kWarps = kSumPartialsThreads / 32;
  auto* of_warps = dynamic_shared<float>();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t column = int64_t{blockIdx.x} * 32 + lane;
  float sum = 0;
  if (column < p.width) {
#pragma unroll 8
    for (int64_t row = warp; row < p.num_partials; row += kWarps) sum += p.partials[row * p.width + column];
  }
  of_warps[threadIdx.x] = sum;
  __syncthreads();
  if (warp > 0 || column >= p.width) return;
  for (int other = 1; other < kWarps; ++other) sum += of_warps[other * 32 + lane];
  store(p.out + column, sum);
}

template <class T>
void sum_partials(const char* op, const SumPartialsParams<T>& params, cudaStream_t stream) {
  launch(op, sum_partials_kernel<T>, ceil_div(params.width, 32), kSumPartialsThreads, kSumPartialsThreads * sizeof(float),
         params, stream);
}

}  // namespace scatterlm::kernels

// Bound by memory: a thread has eight elements at a time. The blocks, one a partial sum, take chunks in turn.
#include "kernels/sum_of_squares.h"

#include "kernels/device/launch.cuh"
#include "kernels/device/operand.h"
#include "kernels/device/vec8.cuh"
#include "kernels/device/warp.cuh"

namespace scatterlm::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

template <class T>
__global__ void __launch_bounds__(kThreads) sum_of_squares_kernel(const __grid_constant__ SumOfSquaresArgs p) {
  const T* x = static_cast<const T*>(p.x);
  const int64_t stride = p.num_partials * kThreads * kVec8;
  double sum = 0;
#pragma unroll 4
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVec8; i < p.count; i += stride) {
    float value[kVec8], squares = 0;
    load_vec8(x + i, p.count - i, value);
#pragma unroll
    for (const float v : value) squares = fmaf(v, v, squares);
    sum += squares;
  }
  auto* of_warps = dynamic_shared<float>();
  const float of_warp = warp_sum(static_cast<float>(sum));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = of_warp;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float of_block = 0;
  for (int warp = 0; warp < kWarps; ++warp) of_block += of_warps[warp];
  p.partials[blockIdx.x] = of_block;
}

}  // namespace

void sum_of_squares(const SumOfSquaresArgs& args, cudaStream_t stream) {
  if (args.num_partials == 0) return;
  check_aligned("sum_of_squares", "x", args.x);
  with_type(args.type, [&]<class T>(T) {
    launch("sum_of_squares", sum_of_squares_kernel<T>, args.num_partials, kThreads, kWarps * sizeof(float), args, stream);
  });
}

}  // namespace scatterlm::kernels

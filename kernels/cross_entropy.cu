// Bound by memory. A block per token reads its row twice: forwards for the maximum and the sum of exponentials in one pass,
// each thread with its own maximum, then backwards for the gradient: the end of the row was read last and is still in a cache.
// Two blocks share a multiprocessor, so that one reads while the other reduces.
#include "kernels/cross_entropy.h"

#include <cfloat>

#include "kernels/device/launch.cuh"
#include "kernels/device/operand.h"
#include "kernels/device/vec8.cuh"
#include "kernels/device/warp.cuh"

namespace scatterlm::kernels {
namespace {

constexpr int kThreads = 1024;

/// sum = sum over what was seen of exp(x - highest).
struct ExpSum {
  float highest = -FLT_MAX;  ///< finite: exp(-inf - highest) of a masked logit is 0
  float sum = 0;

  __device__ void add(const float (&x)[kVec8]) {
    float higher = highest;
#pragma unroll
    for (int i = 0; i < kVec8; ++i) higher = fmaxf(higher, x[i]);
    sum *= expf(highest - higher);
    highest = higher;
#pragma unroll
    for (int i = 0; i < kVec8; ++i) sum += expf(x[i] - highest);
  }

  /// Of all threads, in all threads.
  __device__ void reduce_block() {
    auto* highests = dynamic_shared<float>();
    float* sums = highests + 32;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const float of_warp = warp_max(highest);
    const float sum_of_warp = warp_sum(sum * expf(highest - of_warp));
    if (lane == 0) {
      highests[warp] = of_warp;
      sums[warp] = sum_of_warp;
    }
    __syncthreads();
    highest = warp_max(highests[lane]);
    sum = warp_sum(sums[lane] * expf(highests[lane] - highest));
  }
};

template <class Gradient>
__global__ void __launch_bounds__(kThreads, 2) cross_entropy_kernel(const __grid_constant__ CrossEntropyArgs p) {
  const int64_t token = blockIdx.x, chunks = p.vocab / kVec8, target = p.target[token];
  const float* logits = p.logits + token * p.vocab;
  const bool valid = target >= 0 && target < p.vocab;
  const float of_target = valid ? logits[target] : NAN;  // the gradient may be written over it
  ExpSum all;
  float x[kVec8];
  for (int64_t chunk = threadIdx.x; chunk < chunks; chunk += kThreads) {
    load_vec8(logits + chunk * kVec8, x);
    all.add(x);
  }
  all.reduce_block();
  if (threadIdx.x == 0) p.loss[token] = all.highest - of_target + logf(all.sum);
  if (!p.dlogits) return;
  auto* dlogits = static_cast<Gradient*>(p.dlogits) + token * p.vocab;
  const float scale = 1.0f / all.sum;
  for (int64_t chunk = (chunks - 1) / kThreads * kThreads + threadIdx.x; chunk >= 0; chunk -= kThreads) {
    if (chunk >= chunks) continue;
    load_vec8(logits + chunk * kVec8, x);
#pragma unroll
    for (int i = 0; i < kVec8; ++i) x[i] = fmaf(expf(x[i] - all.highest), scale, chunk * kVec8 + i == target ? -1.0f : 0.0f);
    store_vec8(dlogits + chunk * kVec8, x);
  }
}

}  // namespace

void cross_entropy(const CrossEntropyArgs& args, cudaStream_t stream) {
  check_operand("cross_entropy", "logits", args.logits, args.vocab);
  check_operand("cross_entropy", "dlogits", args.dlogits, args.vocab);
  if (args.num_tokens == 0) return;
  with_type(args.dlogits_type, [&](auto element) {
    launch("cross_entropy", cross_entropy_kernel<decltype(element)>, args.num_tokens, kThreads, 2 * 32 * sizeof(float), args,
           stream);
  });
}

}  // namespace scatterlm::kernels

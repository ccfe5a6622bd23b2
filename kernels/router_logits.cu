// Bound by latency: a warp per expert, in a block of its own so that they spread over the multiprocessors, with 128 bytes of
// the weight on their way in each lane. (A matrix product has too few tiles, or adds up parts of the sums in a second launch.)
#include "kernels/router_logits.h"

#include <string>

#include "kernels/device/launch.cuh"
#include "kernels/device/operand.h"
#include "kernels/device/vec8.cuh"
#include "kernels/device/warp.cuh"

namespace scatterlm::kernels {
namespace {

constexpr int kAtOnce = 8;

__global__ void __launch_bounds__(32) router_logits_kernel(const __grid_constant__ RouterLogitsArgs p) {
  const auto* x = static_cast<const Bf16*>(p.x_TD);
  const auto* weight = static_cast<const Bf16*>(p.weight_ED) + blockIdx.x * p.width;
  const int num_tokens = static_cast<int>(p.num_tokens);
  float sum[kRouterLogitsTokens] = {};
  for (int64_t begin = threadIdx.x * kVec8; begin < p.width; begin += kAtOnce * 32 * kVec8) {
    Vec8<Bf16> of_expert[kAtOnce] = {};
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n)
      if (begin + n * 32 * kVec8 < p.width) of_expert[n] = load_packed(weight + begin + n * 32 * kVec8);
#pragma unroll
    for (int t = 0; t < kRouterLogitsTokens; ++t) {
      if (t >= num_tokens) break;
      const Bf16* row = x + t * p.width + begin;
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        if (begin + n * 32 * kVec8 >= p.width) break;
        float a[kVec8], b[kVec8];
        load_vec8(row + n * 32 * kVec8, a);
        unpack(of_expert[n], b);
#pragma unroll
        for (int i = 0; i < kVec8; ++i) sum[t] = fmaf(a[i], b[i], sum[t]);
      }
    }
  }
#pragma unroll
  for (int t = 0; t < kRouterLogitsTokens; ++t) {
    if (t >= num_tokens) break;
    const float logit = warp_sum(sum[t]);
    if (threadIdx.x == 0) p.logits_TE[t * p.num_experts + blockIdx.x] = logit;
  }
}

}  // namespace

void router_logits(const RouterLogitsArgs& args, cudaStream_t stream) {
  check_operand("router_logits", "x", args.x_TD, args.width);
  check_operand("router_logits", "weight", args.weight_ED, args.width);
  if (args.num_tokens > kRouterLogitsTokens)
    throw KernelError("[router_logits] T must be at most " + std::to_string(kRouterLogitsTokens) + ", got " +
                      std::to_string(args.num_tokens));
  if (args.num_tokens == 0 || args.num_experts == 0) return;
  launch("router_logits", router_logits_kernel, args.num_experts, 32, 0, args, stream);
}

}  // namespace scatterlm::kernels

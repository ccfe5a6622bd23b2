// The scores of one token from its logits, by one warp: lane l holds experts l, l + 32, ... in registers.
#pragma once
#include <type_traits>

#include "kernels/device/ptx.cuh"
#include "kernels/device/warp.cuh"
#include "kernels/router_scores.h"

namespace scatterlm::kernels {

constexpr float kSigmoidEps = 1e-20f;

/// The scores of one token, kPerLane experts in each lane.
template <int kPerLane>
struct TokenScores {
  float z[kPerLane], p[kPerLane];
  float q[kPerLane];  ///< sigmoid only
  float lse, q_sum;
  int lane;

  __device__ TokenScores(const RouterScoresArgs& args, int64_t token) : lane(threadIdx.x % 32) {
    const float* logits = args.logits_TE + token * args.num_experts;
    float highest = -INFINITY;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      z[i] = expert(i) < args.num_experts ? logits[expert(i)] : -INFINITY;
      highest = fmaxf(highest, z[i]);
    }
    highest = warp_max(highest);
    float sum = 0, sum_q = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      p[i] = expert(i) < args.num_experts ? expf(z[i] - highest) : 0.0f;
      q[i] = args.sigmoid && expert(i) < args.num_experts ? 1.0f / (1.0f + expf(-z[i])) : 0.0f;
      sum += p[i];
      sum_q += q[i];
    }
    sum = warp_sum(sum);
    q_sum = warp_sum(sum_q) + kSigmoidEps;
    lse = highest + logf(sum);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) p[i] /= sum;
  }

  __device__ int expert(int i) const { return lane + 32 * i; }
  /// What the losses call the probability of expert(i).
  __device__ float probability(const RouterScoresArgs& args, int i) const { return args.sigmoid ? q[i] / q_sum : p[i]; }
};

/// Calls visit(std::integral_constant<int, kPerLane>) with as many experts per lane as a warp needs for all.
template <class Visit>
void with_experts_per_lane(int64_t num_experts, Visit&& visit) {
  if (num_experts <= 32) return visit(std::integral_constant<int, 1>());
  if (num_experts <= 64) return visit(std::integral_constant<int, 2>());
  if (num_experts <= 128) return visit(std::integral_constant<int, 4>());
  if (num_experts <= 256) return visit(std::integral_constant<int, 8>());
  if (num_experts <= 512) return visit(std::integral_constant<int, 16>());
  visit(std::integral_constant<int, 32>());
}

}  // namespace scatterlm::kernels

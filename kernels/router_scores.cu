// A warp per token; lane l holds experts l, l + 32, ... in registers, slots l and l + 32 of the chosen. The K largest are found
// one after another by two warp reductions each: the largest key, then the lowest index that has it. Sums over tokens stay in
// registers, then go through shared memory and a partial sum of each block, always in the same order.
#include "kernels/router_scores.h"

#include <algorithm>
#include <string>

#include "kernels/device/ceil_div.h"
#include "kernels/device/launch.cuh"
#include "kernels/expert_rows.cuh"
#include "kernels/token_scores.cuh"

namespace scatterlm::kernels {
namespace {

// With 64 experts a multiprocessor has room for five blocks by its registers; an H200 has 132.
constexpr int kWarps = 8, kMaxBlocks = 640;
constexpr int kMaxSlots = 128;  // of a routing made here: no expert has a second tile
static_assert(kMaxSlots <= kTileRows && kMaxSlots <= kWarps * 32);

struct Partials {
  float* prob_sum;  ///< [blocks, E]
  int32_t* counts;  ///< [blocks, E]
  float* lse_sq;    ///< [blocks]
};

struct FwdParams {
  RouterScoresArgs args;
  RouterScoresFwd out;
  Partials partials;
  int blocks;
  RoutingArgs routing;  ///< made if there is memory for it
};

struct BwdParams {
  RouterScoresArgs args;
  RouterScoresBwd grad;
};

/// Orders as the numbers do, with NaN above all of them; 0 is left for what is taken or not there.
__device__ uint32_t ordered_key(float x) {
  if (x != x) return ~0u;
  const uint32_t bits = float_bits(x + 0.0f);  // -0 becomes 0
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/// Slots `lane` and `lane + 32` of a token's chosen.
struct Chosen {
  int id[2] = {-1, -1};
  float gate[2] = {0, 0};  ///< before the scale
  float sum = 1;           ///< what the gates were divided by

  __device__ void set_gates(const RouterScoresArgs& args, int64_t token, float lse) {
    const float* logits = args.logits_TE + token * args.num_experts;
    float highest = -INFINITY, z[2];
    for (int i = 0; i < 2; ++i) {
      z[i] = id[i] >= 0 ? logits[id[i]] : -INFINITY;
      highest = fmaxf(highest, z[i]);
    }
    highest = args.softmax_of_chosen ? warp_max(highest) : lse;
    for (int i = 0; i < 2; ++i)
      if (id[i] >= 0) gate[i] = args.sigmoid ? 1.0f / (1.0f + expf(-z[i])) : expf(z[i] - highest);
    if (args.softmax_of_chosen || (args.sigmoid && args.normalize))
      sum = warp_sum(gate[0] + gate[1]) + (args.sigmoid ? kSigmoidEps : 0.0f);
    for (int i = 0; i < 2; ++i) gate[i] /= sum;
  }
};

template <int kPerLane>
__device__ Chosen choose(const FwdParams& p, const TokenScores<kPerLane>& token) {
  uint32_t key[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    float x = token.z[i];
    if (p.out.bias_E && token.expert(i) < p.args.num_experts)
      x = (p.out.select_by_logits ? x : p.args.sigmoid ? token.q[i] : token.p[i]) + p.out.bias_E[token.expert(i)];
    key[i] = token.expert(i) < p.args.num_experts ? ordered_key(x) : 0;
  }
  Chosen chosen;
  for (int j = 0; j < p.args.top_k; ++j) {
    uint32_t best = 0, index = ~0u;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (key[i] > best) {
        best = key[i];
        index = token.expert(i);
      }
    }
    const uint32_t highest = __reduce_max_sync(~0u, best);
    const auto id = static_cast<int>(__reduce_min_sync(~0u, best == highest ? index : ~0u));
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (token.expert(i) == id) key[i] = 0;
    if (j == token.lane) chosen.id[0] = id;
    if (j == token.lane + 32) chosen.id[1] = id;
  }
  return chosen;
}

/// The routing of at most kMaxSlots slots, by one block. A thread has a slot, then experts, and compares with every slot.
/// Shared memory: 2 kMaxSlots integers.
__device__ void route(const RoutingArgs& args, int32_t* shared) {
  int32_t *ids = shared, *is_first = shared + kMaxSlots;
  const int slot = static_cast<int>(threadIdx.x), slots = static_cast<int>(args.num_rows);
  if (slot < slots) ids[slot] = args.ids_R[slot];
  __syncthreads();
  if (slot < slots) {
    int row = 0, same_before = 0;
    for (int other = 0; other < slots; ++other) {
      const bool same = ids[other] == ids[slot] && other < slot;
      row += same || ids[other] < ids[slot];
      same_before += same;
    }
    is_first[slot] = same_before == 0;
    args.sorted_R[row] = slot;
    args.tokens_R[row] = slot / static_cast<int>(args.top_k);
    args.inverse_R[slot] = row;
  }
  __syncthreads();
  for (int e = threadIdx.x; e < args.num_experts; e += blockDim.x) {
    int rows = 0, tiles = 0;
    for (int other = 0; other < slots; ++other) {
      rows += ids[other] <= e;
      tiles += ids[other] <= e && is_first[other];
    }
    args.offsets_E1[e + 1] = rows;
    args.tiles_E3[e + 1] = tiles;
  }
  if (threadIdx.x == 0) begin_expert_rows(static_cast<int>(args.num_experts), args.offsets_E1, args.tiles_E3);
}

/// Shared memory: counts [E], prob_sum [warps, E], lse_sq [warps], then what route() has.
template <int kPerLane>
__global__ void __launch_bounds__(kWarps * 32) fwd_kernel(const __grid_constant__ FwdParams p) {
  const int num_experts = static_cast<int>(p.args.num_experts), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  auto* counts = dynamic_shared<int32_t>();
  auto* prob_sums = dynamic_shared<float>() + num_experts;
  float* lse_sqs = prob_sums + kWarps * num_experts;
  for (int e = threadIdx.x; e < num_experts; e += blockDim.x) counts[e] = 0;
  __syncthreads();

  float prob_sum[kPerLane] = {}, lse_sq = 0;
  for (int64_t t = int64_t{blockIdx.x} * kWarps + warp; t < p.args.num_tokens; t += int64_t{gridDim.x} * kWarps) {
    const TokenScores<kPerLane> token(p.args, t);
    Chosen chosen = choose(p, token);
    chosen.set_gates(p.args, t, token.lse);
    for (int i = 0; i < 2; ++i) {
      if (chosen.id[i] < 0) continue;
      const int64_t slot = t * p.args.top_k + lane + i * 32;
      p.out.ids_TK[slot] = chosen.id[i];
      p.out.gates_TK[slot] = chosen.gate[i] * p.args.scale;
      atomicAdd(counts + chosen.id[i], 1);
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) prob_sum[i] += token.probability(p.args, i);
    lse_sq = fmaf(token.lse, token.lse, lse_sq);
  }

#pragma unroll
  for (int i = 0; i < kPerLane; ++i)
    if (lane + 32 * i < num_experts) prob_sums[warp * num_experts + lane + 32 * i] = prob_sum[i];
  if (lane == 0) lse_sqs[warp] = lse_sq;
  __syncthreads();
  for (int e = threadIdx.x; e < num_experts; e += blockDim.x) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += prob_sums[w * num_experts + e];
    p.partials.prob_sum[int64_t{blockIdx.x} * num_experts + e] = sum;
    p.partials.counts[int64_t{blockIdx.x} * num_experts + e] = counts[e];
  }
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += lse_sqs[w];
    p.partials.lse_sq[blockIdx.x] = sum;
  }
  if (p.routing.sorted_R) route(p.routing, reinterpret_cast<int32_t*>(lse_sqs + kWarps));
}

/// Warp e sums expert e over the blocks, lane l blocks l, l + 32, ...; warp E sums lse^2.
__global__ void __launch_bounds__(kWarps * 32) sum_kernel(const __grid_constant__ FwdParams p) {
  const int64_t e = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32, num_experts = p.args.num_experts;
  if (e > num_experts) return;
  float sum = 0;
  int count = 0;
  for (int block = threadIdx.x % 32; block < p.blocks; block += 32) {
    sum += e < num_experts ? p.partials.prob_sum[block * num_experts + e] : p.partials.lse_sq[block];
    if (e < num_experts) count += p.partials.counts[block * num_experts + e];
  }
  sum = warp_sum(sum);
  count = __reduce_add_sync(~0u, count);
  if (threadIdx.x % 32 != 0) return;
  if (e < num_experts) {
    p.out.prob_sum_E[e] = sum;
    p.out.counts_E[e] = count;
  } else {
    *p.out.lse_sq_sum = sum;
  }
}

/// Shared memory: gradients of the chosen scores [warps, E].
template <int kPerLane>
__global__ void __launch_bounds__(kWarps * 32) bwd_kernel(const __grid_constant__ BwdParams p) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, top_k = static_cast<int>(p.args.top_k);
  float* dchosen_E = dynamic_shared<float>() + warp * p.args.num_experts;
  const float dlse_sq = *p.grad.dlse_sq_sum;
  for (int64_t t = int64_t{blockIdx.x} * kWarps + warp; t < p.args.num_tokens; t += int64_t{gridDim.x} * kWarps) {
    const TokenScores<kPerLane> token(p.args, t);
    Chosen chosen;
    float dgate[2] = {0, 0};
    for (int i = 0; i < 2; ++i) {
      if (lane + i * 32 >= top_k) continue;
      chosen.id[i] = p.grad.ids_TK[t * top_k + lane + i * 32];
      dgate[i] = p.grad.dgates_TK[t * top_k + lane + i * 32] * p.args.scale;
    }
    chosen.set_gates(p.args, t, token.lse);
    const float gate_dot = warp_sum(chosen.gate[0] * dgate[0] + chosen.gate[1] * dgate[1]);
    float prob_dot = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (token.expert(i) < p.args.num_experts) prob_dot += token.probability(p.args, i) * p.grad.dprob_sum_E[token.expert(i)];
    prob_dot = warp_sum(prob_dot);

    // Gradient of the scores of all experts by the gates: of the chosen, and what a softmax over all takes from everyone.
    const bool over_all = !p.args.sigmoid && !p.args.softmax_of_chosen;
    for (int e = lane; e < p.args.num_experts; e += 32) dchosen_E[e] = 0;
    __syncwarp();
    for (int i = 0; i < 2; ++i) {
      if (chosen.id[i] < 0) continue;
      const float centered = over_all || (p.args.sigmoid && !p.args.normalize) ? dgate[i] : dgate[i] - gate_dot;
      dchosen_E[chosen.id[i]] = p.args.sigmoid ? centered / chosen.sum : chosen.gate[i] * centered;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int e = token.expert(i);
      if (e >= p.args.num_experts) continue;
      const float dscore = (over_all ? -token.p[i] * gate_dot : 0.0f) + dchosen_E[e];
      const float centered = p.grad.dprob_sum_E[e] - prob_dot;
      float dz = p.args.sigmoid ? (dscore + centered / token.q_sum) * token.q[i] * (1.0f - token.q[i])
                                : dscore + centered * token.p[i];
      dz = fmaf(2.0f * dlse_sq * token.lse, token.p[i], dz);
      p.grad.dlogits_TE[t * p.args.num_experts + e] = dz;
    }
  }
}

int64_t blocks_of(const RouterScoresArgs& args) {
  return std::clamp<int64_t>(ceil_div(args.num_tokens, kWarps), 1, kMaxBlocks);
}

void check(const RouterScoresArgs& args) {
  if (args.num_experts < 1 || args.num_experts > kMaxRouterExperts || args.top_k < 1 ||
      args.top_k > std::min<int64_t>(kMaxRouterTopK, args.num_experts))
    throw KernelError("[router_scores] E must be 1.." + std::to_string(kMaxRouterExperts) + " and K 1..min(E, " +
                      std::to_string(kMaxRouterTopK) + "), got E " + std::to_string(args.num_experts) + " and K " +
                      std::to_string(args.top_k));
}

}  // namespace

int64_t router_scores_workspace_bytes(const RouterScoresArgs& args) { return blocks_of(args) * (2 * args.num_experts + 1) * 4; }

bool router_scores_routes(const RouterScoresArgs& args) {
  return blocks_of(args) == 1 && args.num_tokens * args.top_k <= kMaxSlots;
}

void router_scores_fwd(const RouterScoresArgs& args, const RouterScoresFwd& outputs, cudaStream_t stream) {
  check(args);
  const int64_t blocks = blocks_of(args), num_experts = args.num_experts;
  auto* workspace = static_cast<float*>(outputs.workspace);
  FwdParams params{.args = args,
                   .out = outputs,
                   .partials = {.prob_sum = workspace,
                                .counts = reinterpret_cast<int32_t*>(workspace + blocks * num_experts),
                                .lse_sq = workspace + 2 * blocks * num_experts},
                   .blocks = static_cast<int>(blocks),
                   .routing = outputs.routing ? *outputs.routing : RoutingArgs{}};
  // The sums of a single block are those of all: a step of decoding has few tokens, and its time is that of launches.
  if (blocks == 1) params.partials = {outputs.prob_sum_E, outputs.counts_E, outputs.lse_sq_sum};
  if (outputs.routing && !router_scores_routes(args))
    throw KernelError("[router_scores] makes the routing of up to " + std::to_string(kWarps) + " tokens and " +
                      std::to_string(kMaxSlots) + " slots, got T " + std::to_string(args.num_tokens) + " and K " +
                      std::to_string(args.top_k));
  const auto shared_bytes = static_cast<uint32_t>(((1 + kWarps) * num_experts + kWarps + 2 * kMaxSlots) * 4);
  with_experts_per_lane(num_experts, [&](auto per_lane) {
    launch("router_scores", fwd_kernel<decltype(per_lane)::value>, blocks, kWarps * 32, shared_bytes, params, stream);
  });
  if (blocks == 1) return;
  launch("router_scores", sum_kernel, (num_experts + kWarps) / kWarps, kWarps * 32, 0, params, stream);
}

void router_scores_bwd(const RouterScoresArgs& args, const RouterScoresBwd& gradients, cudaStream_t stream) {
  check(args);
  if (args.num_tokens == 0) return;
  const BwdParams params{args, gradients};
  with_experts_per_lane(args.num_experts, [&](auto per_lane) {
    launch("router_scores", bwd_kernel<decltype(per_lane)::value>, ceil_div(args.num_tokens, kWarps), kWarps * 32,
           static_cast<uint32_t>(kWarps * args.num_experts * 4), params, stream);
  });
}

}  // namespace scatterlm::kernels

// Token rounding in three launches.
//
// 1. keys_kernel: every pair (token, expert) gets a key of 32 bits; the higher the key, the sooner the pair is selected. The
// sign
//    bit says that the router chose the pair, the other bits are its gate, or its score if it was not chosen. (Gates are not
//    negative, so their bits ascend as they do; NaN stands highest.)
// 2. select_kernel, a block per expert: it finds the key of the last pair that the expert takes, the threshold. Pairs above it
//    are selected and, of those equal to it, the first tokens. The result is a bit per pair: a TokenGroup for 32 tokens.
// 3. place_kernel, a warp per 32 tokens: from the TokenGroups of all experts it knows the slots and rows of its tokens, and
//    writes the lists.
#include "kernels/token_rounding.h"

#include <string>

#include "kernels/device/ceil_div.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/ptx.cuh"
#include "kernels/expert_rows.cuh"
#include "kernels/grouped_gemm.h"
#include "kernels/token_scores.cuh"

namespace scatterlm::kernels {
namespace {

constexpr const char* kOp = "token_rounding";
constexpr uint32_t kChosen = 0x80000000u;  ///< the bit of a key that says that the router chose the pair
constexpr int kWarps = 8;                  ///< of a block of keys_kernel and bwd_kernel
constexpr int kSelectWarps = 32, kSelectThreads = kSelectWarps * 32;
constexpr int kPlaceWarps = 4;
constexpr int kGroupTokens = 32;
constexpr int kBlockTokens = 16;                     ///< of a block of keys_kernel
constexpr int kSharedTokens = kBlockTokens + 1;      ///< one more, so that 32 experts of a token lie in 32 banks
static_assert(kMaxRouterExperts <= kSelectThreads);  // a thread of select_kernel for each earlier expert

/// Which of 32 neighbouring tokens an expert takes, bit i for token i.
struct alignas(8) TokenGroup {
  uint32_t selected;
  union {
    int32_t first_row;  ///< row of the first selected token of this group or of those behind it
    uint32_t ties;      ///< only inside select_kernel, before rows are known: the pairs whose key is the threshold
  };
};
static_assert(sizeof(TokenGroup) == 8);

struct Params {
  TokenRoundingArgs args;
  int tokens, experts;  ///< T, E
  int padded_tokens;    ///< a multiple of the tokens of a block of place_kernel, more than T
  uint32_t* keys_ET;    ///< [E, padded_tokens]; 0 behind T, where it is never selected
  TokenGroup* groups;   ///< [padded_tokens / 32, E]
};

/// Keys of kBlockTokens tokens. They are made token by token and stored expert by expert: shared memory [E][kSharedTokens]
/// transposes them.
template <int kPerLane>
__global__ void __launch_bounds__(kWarps * 32) keys_kernel(const __grid_constant__ Params p) {
  auto* tile = dynamic_shared<uint32_t>();
  const int first = static_cast<int>(blockIdx.x) * kBlockTokens, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto& router = p.args.router;
  const int top_k = static_cast<int>(router.top_k);
  for (int i = warp; i < kBlockTokens; i += kWarps) {
    const int64_t t = first + i;
    if (t >= p.tokens) {
      for (int e = lane; e < p.experts; e += 32) tile[e * kSharedTokens + i] = 0;
      continue;
    }
    const TokenScores<kPerLane> token(router, t);
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const float score = router.sigmoid && !router.normalize ? token.q[j] : token.probability(router, j);
      if (token.expert(j) < p.experts) tile[token.expert(j) * kSharedTokens + i] = float_bits(score * router.scale) & ~kChosen;
    }
    __syncwarp();
    for (int j = lane; j < top_k; j += 32)
      tile[p.args.ids_TK[t * top_k + j] * kSharedTokens + i] = float_bits(p.args.gates_TK[t * top_k + j]) | kChosen;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < p.experts * kBlockTokens; i += blockDim.x) {
    const int e = i / kBlockTokens, token = i % kBlockTokens;
    p.keys_ET[int64_t{e} * p.padded_tokens + first + token] = tile[e * kSharedTokens + token];
  }
}

/// The rows of an expert that `count` tokens chose: the nearest multiple of kTileRows, the lower one from the middle, at most
/// T.
__device__ int rounded_count(int count, int num_tokens) {
  const int rest = count % kTileRows;
  return min(count - rest + (2 * rest > kTileRows ? kTileRows : 0), num_tokens);
}

/// Shared memory of select_kernel.
struct Selection {
  static constexpr int kSamples = 128, kListed = 512;
  uint32_t list[kListed];  ///< candidates for the next bound: at first kSamples samples, then values above the bound
  uint32_t bound;          ///< of the n-th highest value, from below
  int32_t num_listed;      ///< in all rounds together
  int32_t sums[2][kSelectWarps];
};

/// Two numbers of each warp (own) are summed over the warps before this one and over all warps.
__device__ void sum_over_block(Selection& shared, const int (&own)[2], int (&before)[2], int (&total)[2]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __syncthreads();  // earlier sums have been read
  if (lane < 2) shared.sums[lane][warp] = lane == 0 ? own[0] : own[1];
  __syncthreads();
  for (int i = 0; i < 2; ++i) {
    total[i] = __reduce_add_sync(~0u, shared.sums[i][lane]);
    before[i] = __reduce_add_sync(~0u, lane < warp ? shared.sums[i][lane] : 0);
  }
}

/// visit(key) for all keys of an expert, and some that are 0. Up to some 50000 tokens they fit L1: only the first time is slow.
template <class Visit>
__device__ void for_keys(const uint32_t* keys, int num_keys, Visit&& visit) {
  constexpr int kInFlight = 8;
  for (int first = threadIdx.x; first < num_keys; first += kInFlight * kSelectThreads) {
    uint32_t key[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int t = first + i * kSelectThreads;
      key[i] = t < num_keys ? keys[t] : 0;
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) visit(key[i]);
  }
}

/// The threshold: the key of the last pair that an expert takes, if it takes `wanted` where the router chose it `chosen` times.
///
/// Either n = wanted - chosen unchosen pairs come in, those of the highest keys, or n = chosen - wanted chosen ones are
/// dropped, those of the lowest keys; n is at most 64. Both are one search for the n-th highest of the pairs' values: a value
/// is the key of an unchosen pair or, to drop, the complement of the key of a chosen one; all others have 0.
///
/// The search raises a bound that is never above the n-th highest value: among any values of different pairs, the n-th highest
/// is such a bound. The first candidates are kSamples samples, the highest value of tokens i, i + 128, ...; the next are the
/// values above the bound (kListed of them, if there are more). When fewer than n values are above the bound, it is the n-th
/// highest itself.
__device__ uint32_t find_threshold(const uint32_t* keys, int num_keys, int chosen, int wanted, Selection& shared) {
  if (wanted == chosen) return kChosen - 1;  // above all unchosen pairs, below all chosen ones
  const bool drops = wanted < chosen;
  const uint32_t flip = drops ? ~0u : 0;
  const int n = drops ? chosen - wanted : wanted - chosen;
  const auto value = [&](uint32_t key) { return (key ^ flip) < kChosen ? key ^ flip : 0; };

  uint32_t highest = 0;
  for_keys(keys, num_keys, [&](uint32_t key) { highest = max(highest, value(key)); });
  atomicMax(shared.list + threadIdx.x % Selection::kSamples, highest);
  __syncthreads();
  for (int listed = Selection::kSamples, before = 0;;) {
    uint32_t own = 0;  // this thread's candidate, if n candidates or more are as high
    if (static_cast<int>(threadIdx.x) < listed) {
      const uint32_t candidate = shared.list[threadIdx.x];
      int as_high = 0;
#pragma unroll 8
      for (int i = 0; i < listed; ++i) as_high += shared.list[i] >= candidate ? 1 : 0;
      if (as_high >= n) own = candidate;
    }
    own = __reduce_max_sync(~0u, own);
    if (threadIdx.x % 32 == 0) atomicMax(&shared.bound, own);
    __syncthreads();
    const uint32_t bound = shared.bound;
    for_keys(keys, num_keys, [&](uint32_t key) {
      if (value(key) <= bound) return;
      const int place = atomicAdd(&shared.num_listed, 1) - before;
      if (place < Selection::kListed) shared.list[place] = value(key);
    });
    __syncthreads();
    const int above = shared.num_listed - before;
    if (above < n) return bound ^ flip;
    before += above;
    listed = min(above, Selection::kListed);
  }
}

/// An expert's rows.
struct ExpertRange {
  int chosen, wanted;  ///< how many tokens the router gave it, and how many it takes
  int first_row;
};

/// Adds up the rows of the earlier experts, one in each thread. Writes where the expert's rows and tiles end.
__device__ ExpertRange place_expert(const Params& p, int expert, Selection& shared) {
  enum { kRows, kTiles };
  const int thread = static_cast<int>(threadIdx.x);
  int own[2] = {0, 0}, before[2], total[2];
  if (thread < expert) {
    own[kRows] = rounded_count(p.args.counts_E[thread], p.tokens);
    own[kTiles] = ceil_div(own[kRows], kTileRows);
  }
  for (int& x : own) x = __reduce_add_sync(~0u, x);
  sum_over_block(shared, own, before, total);
  const int chosen = p.args.counts_E[expert], wanted = rounded_count(chosen, p.tokens);
  if (thread == 0) {
    if (expert == 0) begin_expert_rows(p.experts, p.args.offsets_E1, p.args.tiles_E3);
    p.args.offsets_E1[expert + 1] = total[kRows] + wanted;
    p.args.tiles_E3[expert + 1] = total[kTiles] + ceil_div(wanted, kTileRows);
  }
  return {chosen, wanted, total[kRows]};
}

/// A block per expert. Each warp has successive groups of tokens, 32 at a time, one in each lane.
__global__ void __launch_bounds__(kSelectThreads) select_kernel(const __grid_constant__ Params p) {
  enum { kAbove, kTies };  // pairs above the threshold are selected, of those equal to it the first
  const int expert = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  auto& shared = *dynamic_shared<Selection>();
  if (thread < Selection::kSamples) shared.list[thread] = 0;
  if (thread == 0) shared.bound = shared.num_listed = 0;

  const ExpertRange range = place_expert(p, expert, shared);
  const uint32_t* keys = p.keys_ET + int64_t{expert} * p.padded_tokens;
  const uint32_t threshold = find_threshold(keys, p.tokens, range.chosen, range.wanted, shared);

  // First pass over the keys: which pairs are above the threshold, which are equal to it, and how many the warp has of each.
  const int num_groups = p.padded_tokens / kGroupTokens, warp_groups = ceil_div(num_groups, kSelectWarps);
  const int begin = min(thread / 32 * warp_groups, num_groups), end = min(begin + warp_groups, num_groups);
  const auto group_of_lane = [&](int first) -> TokenGroup& { return p.groups[int64_t{first + lane} * p.experts + expert]; };
  int count[2] = {0, 0}, before[2], total[2];
  for (int first = begin; first < end; first += 32) {
    uint32_t own[2] = {0, 0};
#pragma unroll 8
    for (int i = 0; i < min(end - first, 32); ++i) {
      const uint32_t key = keys[(first + i) * kGroupTokens + lane];
      const uint32_t above = __ballot_sync(~0u, key > threshold), ties = __ballot_sync(~0u, key == threshold);
      if (lane == i) {
        own[kAbove] = above;
        own[kTies] = ties;
      }
    }
    for (int k = 0; k < 2; ++k) count[k] += __popc(own[k]);
    if (first + lane < end) group_of_lane(first) = {.selected = own[kAbove], .ties = own[kTies]};
  }
  for (int& c : count) c = __reduce_add_sync(~0u, c);
  sum_over_block(shared, count, before, total);

  // Second pass, over the groups: ties are selected until the expert has all it takes, and every group gets its first row.
  const int ties_wanted = range.wanted - total[kAbove];
  int row = range.first_row + before[kAbove] + min(before[kTies], ties_wanted), ties_left = ties_wanted - before[kTies];
  for (int first = begin; first < end; first += 32) {
    const TokenGroup group = first + lane < end ? group_of_lane(first) : TokenGroup{.selected = 0, .ties = 0};
    uint32_t selected = group.selected, ties = group.ties;
    const int ties_through = warp_inclusive_sum(__popc(ties));
    for (int left = ties_left - ties_through + __popc(ties); ties != 0 && left > 0; --left, ties &= ties - 1)
      selected |= ties & -ties;  // the lowest bit
    const int through = warp_inclusive_sum(__popc(selected));
    if (first + lane < end) group_of_lane(first) = {.selected = selected, .first_row = row + through - __popc(selected)};
    row += __shfl_sync(~0u, through, 31);
    ties_left -= __shfl_sync(~0u, ties_through, 31);
  }
}

/// A warp per 32 tokens. Slots ascend in (token, expert): those before this warp's tokens are, of every expert, the rows before
/// its group of these tokens.
template <int kPerLane>
__global__ void __launch_bounds__(kPlaceWarps * 32) place_kernel(const __grid_constant__ Params p) {
  const int thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), lane = thread % 32;
  const TokenGroup* groups = p.groups + int64_t{thread / 32} * p.experts;  // of these tokens, by expert
  // Until the row of the slot replaces it. (By reference: a copy of the pointer changes the registers of all sizes.)
  int32_t* const& token_of_slot = p.args.inverse_R;

  // Read with an expert in each lane; turned, so that a lane has the experts of its token.
  uint32_t experts[kPerLane];  // bit i of experts[j]: the token is in the rows of expert 32 j + i
  int before = 0, own = 0;     // slots
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const int e = 32 * j + lane;
    const TokenGroup group = e < p.experts ? groups[e] : TokenGroup{.selected = 0, .first_row = 0};
    if (e < p.experts) before += group.first_row - p.args.offsets_E1[e];
    experts[j] = warp_transpose(group.selected);
    own += __popc(experts[j]);
  }
  before = __reduce_add_sync(~0u, before);
  const int through = warp_inclusive_sum(own), end = before + __shfl_sync(~0u, through, 31);

  // A lane writes the experts of its token's slots.
  int slot = before + through - own;
  if (thread <= p.tokens) p.args.token_offsets_T1[thread] = slot;
#pragma unroll
  for (int j = 0; j < kPerLane; ++j)
    for (uint32_t left = experts[j]; left; left &= left - 1) {
      p.args.experts_R[slot] = 32 * j + __ffs(left) - 1;
      token_of_slot[slot++] = thread;
    }
  __syncwarp();

  // Now a lane has a slot, whatever its token.
  for (int i = before + lane; i < end; i += 32) {
    const int e = p.args.experts_R[i], t = token_of_slot[i];
    const uint32_t key = p.keys_ET[int64_t{e} * p.padded_tokens + t];  // loaded together with the group, not behind the stores
    const TokenGroup group = groups[e];
    const int row = group.first_row + __popc(group.selected & ((1u << t % kGroupTokens) - 1));
    p.args.inverse_R[i] = row;
    p.args.sorted_R[row] = i;
    p.args.tokens_R[row] = t;
    p.args.gates_R[i] = float_of_bits(key & ~kChosen);
  }

  // Behind the last slot: all threads of the grid.
  for (int64_t i = p.args.offsets_E1[p.experts] + thread; i < p.args.num_slots; i += int64_t{gridDim.x} * blockDim.x) {
    p.args.inverse_R[i] = p.args.sorted_R[i] = static_cast<int32_t>(i);
    p.args.tokens_R[i] = p.args.experts_R[i] = 0;
    p.args.gates_R[i] = 0.0f;
  }
}

/// The gradient of a gate goes to the router's gate of a chosen pair, or through the score of a filled one to the logits.
/// A warp per token.
template <int kPerLane>
__global__ void __launch_bounds__(kWarps * 32) bwd_kernel(const __grid_constant__ TokenRoundingBwdArgs p) {
  const int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32, experts = p.router.num_experts;
  if (t >= p.router.num_tokens) return;
  const int lane = threadIdx.x % 32, top_k = static_cast<int>(p.router.top_k);
  int id[2];  // experts that the router chose for this token, of up to 64 two in each lane
  float dgate[2] = {0, 0}, dscore[kPerLane] = {};
  for (int j = 0; j < 2; ++j) id[j] = lane + j * 32 < top_k ? p.ids_TK[t * top_k + lane + j * 32] : -1;
  bool filled = false;
  for (int slot = p.token_offsets_T1[t]; slot < p.token_offsets_T1[t + 1]; ++slot) {
    const int expert = p.experts_R[slot];
    const float d = p.dgates_R[slot];
    for (int j = 0; j < 2; ++j)
      if (id[j] == expert) dgate[j] = d;
    if (__ballot_sync(~0u, id[0] == expert || id[1] == expert)) continue;
    filled = true;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (lane + 32 * i == expert) dscore[i] = d * p.router.scale;
  }
  for (int j = 0; j < 2; ++j)
    if (id[j] >= 0) p.dgates_TK[t * top_k + lane + j * 32] = dgate[j];

  float dz[kPerLane] = {};
  if (filled) {
    const TokenScores<kPerLane> token(p.router, t);
    const bool share = !p.router.sigmoid || p.router.normalize;  // a score is a share of the sum over all experts
    float dot = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) dot += token.probability(p.router, i) * dscore[i];
    dot = share ? warp_sum(dot) : 0.0f;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const float centered = dscore[i] - dot, slope = token.q[i] * (1.0f - token.q[i]);
      dz[i] = !p.router.sigmoid ? token.p[i] * centered : slope * (share ? centered / token.q_sum : centered);
    }
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i)
    if (lane + 32 * i < experts) p.dlogits_TE[t * experts + lane + 32 * i] = dz[i];
}

void check(const RouterScoresArgs& router) {
  if (router.num_experts > kMaxRouterExperts || router.top_k > kMaxRouterTopK)
    throw KernelError("[token_rounding] E must be at most " + std::to_string(kMaxRouterExperts) + " and K at most " +
                      std::to_string(kMaxRouterTopK) + ", got E " + std::to_string(router.num_experts) + " and K " +
                      std::to_string(router.top_k));
}

}  // namespace

int64_t token_rounding_key_stride(int64_t num_tokens) {
  constexpr int kStep = kPlaceWarps * kGroupTokens;
  return num_tokens / kStep * kStep + kStep;
}

int64_t token_rounding_workspace_bytes(const TokenRoundingArgs& args) {
  const int64_t padded = token_rounding_key_stride(args.router.num_tokens), experts = args.router.num_experts;
  return padded * experts * sizeof(uint32_t) + padded / kGroupTokens * experts * sizeof(TokenGroup);
}

void token_rounding_fwd(const TokenRoundingArgs& args, cudaStream_t stream) {
  check(args.router);
  if (args.num_slots >= int64_t{1} << 31)
    throw KernelError("[token_rounding] slots must be below 2^31, got " + std::to_string(args.num_slots));
  const int64_t padded = token_rounding_key_stride(args.router.num_tokens), experts = args.router.num_experts;
  auto* keys_ET = static_cast<uint32_t*>(args.workspace);
  const Params params{.args = args,
                      .tokens = static_cast<int>(args.router.num_tokens),
                      .experts = static_cast<int>(experts),
                      .padded_tokens = static_cast<int>(padded),
                      .keys_ET = keys_ET,
                      .groups = reinterpret_cast<TokenGroup*>(keys_ET + padded * experts)};
  with_experts_per_lane(experts, [&](auto per_lane) {
    constexpr int kPerLane = decltype(per_lane)::value;
    launch(kOp, keys_kernel<kPerLane>, padded / kBlockTokens, kWarps * 32, static_cast<uint32_t>(experts * kSharedTokens * 4),
           params, stream);
    launch(kOp, select_kernel, experts, kSelectThreads, sizeof(Selection), params, stream);
    launch(kOp, place_kernel<kPerLane>, padded / (kPlaceWarps * kGroupTokens), kPlaceWarps * 32, 0, params, stream);
  });
}

void token_rounding_bwd(const TokenRoundingBwdArgs& args, cudaStream_t stream) {
  check(args.router);
  if (args.router.num_tokens == 0) return;
  with_experts_per_lane(args.router.num_experts, [&](auto per_lane) {
    launch(kOp, bwd_kernel<decltype(per_lane)::value>, ceil_div(args.router.num_tokens, kWarps), kWarps * 32, 0, args, stream);
  });
}

}  // namespace scatterlm::kernels

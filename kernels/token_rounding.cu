// Every pair (token, expert) has a key of 32 bits whose order is that of the rule: the sign bit says that the router chose the
// pair, the others are its gate or score. (Gates are not negative, so their bits ascend as they do; NaN stands highest.) A
// block per expert finds the key of the last one that stays. Selected pairs become one bit each; 32 tokens of an expert are a
// word, with the row of its first token. From the words of its 32 tokens, a warp knows their slots and rows.
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
constexpr uint32_t kChosen = 0x80000000u;
constexpr int kWarps = 8, kSelectWarps = 32, kSelectThreads = kSelectWarps * 32;
constexpr int kKeyTokens = 16, kKeyStride = kKeyTokens + 1;
constexpr int kWordTokens = 32, kPlaceWarps = 4;
static_assert(kMaxRouterExperts <= kSelectThreads);

/// The selected among 32 tokens of an expert.
struct alignas(8) Word {
  uint32_t tokens;
  int32_t first_row;  ///< of the first selected token at or behind the first of the 32
};

struct Params {
  TokenRoundingArgs args;
  int tokens, experts, padded_tokens;  ///< padded: a multiple of kPlaceWarps words above T
  uint32_t* keys_ET;                   ///< [E, padded]; 0 behind T, where it is never selected
  Word* words;                         ///< [padded / 32, E]
};

/// Keys of kKeyTokens tokens a block, transposed on the way: shared memory has [E][kKeyStride].
template <int kLane>
__global__ void __launch_bounds__(kWarps * 32) keys_kernel(const __grid_constant__ Params p) {
  auto* tile = dynamic_shared<uint32_t>();
  const int first = static_cast<int>(blockIdx.x) * kKeyTokens, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto& router = p.args.router;
  const int top_k = static_cast<int>(router.top_k);
  for (int i = warp; i < kKeyTokens; i += kWarps) {
    const int64_t t = first + i;
    if (t >= p.tokens) {
      for (int e = lane; e < p.experts; e += 32) tile[e * kKeyStride + i] = 0;
      continue;
    }
    const TokenScores<kLane> token(router, t);
#pragma unroll
    for (int j = 0; j < kLane; ++j) {
      const float score = router.sigmoid && !router.normalize ? token.q[j] : token.probability(router, j);
      if (token.expert(j) < p.experts) tile[token.expert(j) * kKeyStride + i] = float_bits(score * router.scale) & ~kChosen;
    }
    __syncwarp();
    for (int j = lane; j < top_k; j += 32)
      tile[p.args.ids_TK[t * top_k + j] * kKeyStride + i] = float_bits(p.args.gates_TK[t * top_k + j]) | kChosen;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < p.experts * kKeyTokens; i += blockDim.x) {
    const int e = i / kKeyTokens, token = i % kKeyTokens;
    p.keys_ET[int64_t{e} * p.padded_tokens + first + token] = tile[e * kKeyStride + token];
  }
}

/// The rows of an expert that `count` tokens chose.
__device__ int rounded_count(int count, int num_tokens) {
  const int rest = count % kTileRows;
  return min(count - rest + (2 * rest > kTileRows ? kTileRows : 0), num_tokens);
}

/// Shared memory of select_kernel.
struct Selection {
  static constexpr int kGroups = 128, kListed = 512;
  uint32_t list[kListed];  ///< values above the bound; at first the highest of each group
  uint32_t bound;
  int32_t num_listed;  ///< in all rounds together
  int32_t sums[2][kSelectWarps];
};

/// Of two values per warp, sums over the warps before this one and over all.
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

/// The key of the last pair that stays. Of all unchosen pairs the highest come in, or of the chosen the lowest are dropped,
/// 64 at most; so we look for the n-th highest value, which is the key or its complement, and 0 for the others. The n-th
/// highest of any n values or more is a bound for it: first of one value from each group of tokens, then of values above the
/// bound before, until there are less than n of them.
__device__ uint32_t find_threshold(const uint32_t* keys, int num_keys, int chosen, int wanted, Selection& shared) {
  if (wanted == chosen) return kChosen - 1;
  const uint32_t flip = wanted < chosen ? ~0u : 0;
  const int n = wanted < chosen ? chosen - wanted : wanted - chosen;
  const auto value = [&](uint32_t key) { return (key ^ flip) < kChosen ? key ^ flip : 0; };

  uint32_t highest = 0;
  for_keys(keys, num_keys, [&](uint32_t key) { highest = max(highest, value(key)); });
  atomicMax(shared.list + threadIdx.x % Selection::kGroups, highest);
  __syncthreads();
  for (int listed = Selection::kGroups, before = 0;;) {
    uint32_t own = 0;  // if n values or more are as high
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

/// A block per expert.
__global__ void __launch_bounds__(kSelectThreads) select_kernel(const __grid_constant__ Params p) {
  const int expert = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  auto& shared = *dynamic_shared<Selection>();
  if (thread < Selection::kGroups) shared.list[thread] = 0;
  if (thread == 0) shared.bound = shared.num_listed = 0;

  int rows[2] = {0, 0}, before[2], total[2];  // of earlier experts, in rows and in tiles
  if (thread < expert) {
    rows[0] = rounded_count(p.args.counts_E[thread], p.tokens);
    rows[1] = ceil_div(rows[0], kTileRows);
  }
  for (int& x : rows) x = __reduce_add_sync(~0u, x);
  sum_over_block(shared, rows, before, total);
  const int chosen = p.args.counts_E[expert], wanted = rounded_count(chosen, p.tokens), first_row = total[0];
  if (thread == 0) {
    if (expert == 0) begin_expert_rows(p.experts, p.args.offsets_E1, p.args.tiles_E3);
    p.args.offsets_E1[expert + 1] = first_row + wanted;
    p.args.tiles_E3[expert + 1] = total[1] + ceil_div(wanted, kTileRows);
  }

  const uint32_t* keys = p.keys_ET + int64_t{expert} * p.padded_tokens;
  const uint32_t threshold = find_threshold(keys, p.tokens, chosen, wanted, shared);

  // Each warp has successive words, a lane each 32nd of them. They hold the pairs above the threshold and, until the row is
  // known, in its place those equal to it.
  const int num_words = p.padded_tokens / kWordTokens, warp_words = ceil_div(num_words, kSelectWarps);
  const int begin = min(thread / 32 * warp_words, num_words), end = min(begin + warp_words, num_words);
  const auto word_of = [&](int group) -> Word& { return p.words[int64_t{group + lane} * p.experts + expert]; };
  int count[2] = {0, 0};
  for (int group = begin; group < end; group += 32) {
    uint32_t own[2] = {0, 0};
#pragma unroll 8
    for (int i = 0; i < min(end - group, 32); ++i) {
      const uint32_t key = keys[(group + i) * kWordTokens + lane];
      const uint32_t above = __ballot_sync(~0u, key > threshold), ties = __ballot_sync(~0u, key == threshold);
      if (lane == i) {
        own[0] = above;
        own[1] = ties;
      }
    }
    for (int k = 0; k < 2; ++k) count[k] += __popc(own[k]);
    if (group + lane < end) word_of(group) = {own[0], static_cast<int32_t>(own[1])};
  }
  for (int& c : count) c = __reduce_add_sync(~0u, c);
  sum_over_block(shared, count, before, total);

  // The first of those equal to it stay too.
  int row = first_row + before[0] + min(before[1], wanted - total[0]), ties_left = wanted - total[0] - before[1];
  for (int group = begin; group < end; group += 32) {
    const Word word = group + lane < end ? word_of(group) : Word{0, 0};
    uint32_t selected = word.tokens, ties = static_cast<uint32_t>(word.first_row);
    const int ties_through = warp_inclusive_sum(__popc(ties));
    for (int left = ties_left - ties_through + __popc(ties); ties != 0 && left > 0; --left, ties &= ties - 1)
      selected |= ties & -ties;
    const int through = warp_inclusive_sum(__popc(selected));
    if (group + lane < end) word_of(group) = {selected, row + through - __popc(selected)};
    row += __shfl_sync(~0u, through, 31);
    ties_left -= __shfl_sync(~0u, ties_through, 31);
  }
}

/// A warp per 32 tokens, a lane per token. Slots before these tokens are the rows before their words, without those of earlier
/// experts.
template <int kLane>
__global__ void __launch_bounds__(kPlaceWarps * 32) place_kernel(const __grid_constant__ Params p) {
  const int thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), lane = thread % 32;
  const Word* words = p.words + int64_t{thread / 32} * p.experts;
  uint32_t experts[kLane];  // that this lane's token has among 32 j, 32 j + 1, ...
  int before = 0, own = 0;
#pragma unroll
  for (int j = 0; j < kLane; ++j) {
    const int e = 32 * j + lane;
    const Word word = e < p.experts ? words[e] : Word{0, 0};
    if (e < p.experts) before += word.first_row - p.args.offsets_E1[e];
    experts[j] = warp_transpose(word.tokens);
    own += __popc(experts[j]);
  }
  before = __reduce_add_sync(~0u, before);
  const int through = warp_inclusive_sum(own), end = before + __shfl_sync(~0u, through, 31);
  int slot = before + through - own;
  if (thread <= p.tokens) p.args.token_offsets_T1[thread] = slot;
#pragma unroll
  for (int j = 0; j < kLane; ++j)
    for (uint32_t left = experts[j]; left; left &= left - 1) {
      p.args.experts_R[slot] = 32 * j + __ffs(left) - 1;
      p.args.inverse_R[slot++] = thread;  // the token, until the row stands there
    }
  __syncwarp();
  for (int i = before + lane; i < end; i += 32) {
    const int e = p.args.experts_R[i], t = p.args.inverse_R[i];
    const uint32_t key = p.keys_ET[int64_t{e} * p.padded_tokens + t];  // loaded beside the word, not behind the stores
    const Word word = words[e];
    const int row = word.first_row + __popc(word.tokens & ((1u << t % kWordTokens) - 1));
    p.args.inverse_R[i] = row;
    p.args.sorted_R[row] = i;
    p.args.tokens_R[row] = t;
    p.args.gates_R[i] = float_of_bits(key & ~kChosen);
  }

  for (int64_t i = p.args.offsets_E1[p.experts] + thread; i < p.args.num_slots; i += int64_t{gridDim.x} * blockDim.x) {
    p.args.inverse_R[i] = p.args.sorted_R[i] = static_cast<int32_t>(i);
    p.args.tokens_R[i] = p.args.experts_R[i] = 0;
    p.args.gates_R[i] = 0.0f;
  }
}

/// A warp per token.
template <int kLane>
__global__ void __launch_bounds__(kWarps * 32) bwd_kernel(const __grid_constant__ TokenRoundingBwdArgs p) {
  const int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32, experts = p.router.num_experts;
  if (t >= p.router.num_tokens) return;
  const int lane = threadIdx.x % 32, top_k = static_cast<int>(p.router.top_k);
  int id[2];
  float dgate[2] = {0, 0}, dscore[kLane] = {};
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
    for (int i = 0; i < kLane; ++i)
      if (lane + 32 * i == expert) dscore[i] = d * p.router.scale;
  }
  for (int j = 0; j < 2; ++j)
    if (id[j] >= 0) p.dgates_TK[t * top_k + lane + j * 32] = dgate[j];

  float dz[kLane] = {};
  if (filled) {
    const TokenScores<kLane> token(p.router, t);
    const bool share = !p.router.sigmoid || p.router.normalize;  // a score is a share of the sum over all experts
    float dot = 0;
#pragma unroll
    for (int i = 0; i < kLane; ++i) dot += token.probability(p.router, i) * dscore[i];
    dot = share ? warp_sum(dot) : 0.0f;
#pragma unroll
    for (int i = 0; i < kLane; ++i) {
      const float centered = dscore[i] - dot, slope = token.q[i] * (1.0f - token.q[i]);
      dz[i] = !p.router.sigmoid ? token.p[i] * centered : slope * (share ? centered / token.q_sum : centered);
    }
  }
#pragma unroll
  for (int i = 0; i < kLane; ++i)
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
  constexpr int kStep = kPlaceWarps * kWordTokens;
  return num_tokens / kStep * kStep + kStep;
}

int64_t token_rounding_workspace_bytes(const TokenRoundingArgs& args) {
  const int64_t padded = token_rounding_key_stride(args.router.num_tokens), experts = args.router.num_experts;
  return padded * experts * 4 + padded / kWordTokens * experts * 8;
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
                      .words = reinterpret_cast<Word*>(keys_ET + padded * experts)};
  with_lane_experts(experts, [&](auto lane_experts) {
    constexpr int kLane = decltype(lane_experts)::value;
    launch(kOp, keys_kernel<kLane>, padded / kKeyTokens, kWarps * 32, static_cast<uint32_t>(experts * kKeyStride * 4), params,
           stream);
    launch(kOp, select_kernel, experts, kSelectThreads, sizeof(Selection), params, stream);
    launch(kOp, place_kernel<kLane>, padded / (kPlaceWarps * kWordTokens), kPlaceWarps * 32, 0, params, stream);
  });
}

void token_rounding_bwd(const TokenRoundingBwdArgs& args, cudaStream_t stream) {
  check(args.router);
  if (args.router.num_tokens == 0) return;
  with_lane_experts(args.router.num_experts, [&](auto lane_experts) {
    launch(kOp, bwd_kernel<decltype(lane_experts)::value>, ceil_div(args.router.num_tokens, kWarps), kWarps * 32, 0, args,
           stream);
  });
}

}  // namespace scatterlm::kernels

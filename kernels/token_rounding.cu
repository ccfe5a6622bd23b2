// Every pair (token, expert) has a key of 32 bits whose order is that of the rule: the sign bit says that the router chose the
// pair, the others are its gate or score. (Gates are not negative, so their bits ascend as they do; NaN stands highest.) A
// block per expert finds the key of the last one that stays, two bits at a time, and goes through the tokens once more in their
// order. Selected pairs become one bit each; 32 tokens of an expert are a word, with the row of its first token. From the
// words, warps of 32 tokens count and place the slots.
#include "kernels/token_rounding.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/device/expert_offsets.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/token_scores.cuh"

namespace scatterlm::kernels {
namespace {

constexpr const char* kOp = "token_rounding";
constexpr int kPieceTokens = 128;  ///< whose slots are counted together
constexpr uint32_t kChosen = 0x80000000u;
constexpr int kWarps = 8, kSelectWarps = 32;
constexpr int kKeyTokens = 16, kKeyStride = kKeyTokens + 1;
constexpr uint32_t kMaxSharedBytes = 99 * 1024;  ///< what every GPU from 8.0 on has

/// The selected among 32 tokens of an expert.
struct alignas(8) Word {
  uint32_t tokens;
  int32_t first_row;  ///< of the first selected token at or behind the first of the 32
};

struct Params {
  TokenRoundingArgs args;
  int tokens, experts, padded_tokens;  ///< padded: a multiple of 128 above T
  uint32_t* keys_ET;                   ///< [E, padded]; 0 behind T, where it is never selected
  Word* words;                         ///< [padded / 32, E]
  float* gates_of_rows;                ///< [R]
  int32_t* piece_slots;                ///< [padded / 128] slots of each piece
  bool stage_keys;                     ///< the keys of an expert fit shared memory
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
  if (threadIdx.x == 0 && first % kPieceTokens == 0) p.piece_slots[first / kPieceTokens] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < p.experts * kKeyTokens; i += blockDim.x) {
    const int e = i / kKeyTokens, token = i % kKeyTokens;
    p.keys_ET[int64_t{e} * p.padded_tokens + first + token] = tile[e * kKeyStride + token];
  }
}

/// Sums over the warps of a block, of values that the lanes of a warp agree on. Two buffers take turns, so one barrier a call
/// is enough.
template <int kWarps>
class BlockSums {
 public:
  static constexpr int kMaxValues = 3;
  static constexpr int kBytes = 2 * kMaxValues * kWarps * 4;

  __device__ explicit BlockSums(int32_t* buffers) : buffers_(buffers) {}

  /// before: over the warps before this one.
  template <int kValues>
  __device__ void add(const int (&own)[kValues], int (&before)[kValues], int (&total)[kValues]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int32_t* buffer = buffers_ + turn_ * kMaxValues * kWarps;
    turn_ ^= 1;
    for (int i = 0; i < kValues; ++i)
      if (lane == 0) buffer[i * kWarps + warp] = own[i];
    __syncthreads();
    for (int i = 0; i < kValues; ++i) {
      const int value = lane < kWarps ? buffer[i * kWarps + lane] : 0;
      total[i] = __reduce_add_sync(~0u, value);
      before[i] = __reduce_add_sync(~0u, lane < warp ? value : 0);
    }
  }

 private:
  int32_t* buffers_;
  int turn_ = 0;
};

using SelectSums = BlockSums<kSelectWarps>;

/// The rows of an expert that `count` tokens chose.
__device__ int rounded_count(int count, int num_tokens) {
  const int rest = count % kTileRows;
  return min(count - rest + (2 * rest > kTileRows ? kTileRows : 0), num_tokens);
}

/// All keys from low + width on are selected, and the first `ties` of those from low on.
struct Threshold {
  uint32_t low, width;
  int ties;
  __device__ bool selects(uint32_t key) const { return key > low && key - low >= width; }
  __device__ bool is_tie(uint32_t key) const { return key - low < width; }
};

/// So that `wanted` keys are selected.
__device__ Threshold find_threshold(const uint32_t* keys, int num_keys, int wanted, SelectSums& sums) {
  if (wanted == 0) return {.low = ~0u, .width = 1, .ties = 0};
  uint32_t low = 0, width = 0;
  int from_low = num_keys, above = 0;  // keys from low on, and from low + width on
  for (int shift = 30; shift >= 0 && (shift == 30 || from_low != wanted); shift -= 2) {
    int count[3] = {}, before[3], total[3];
    for (int i = threadIdx.x; i < num_keys / 4; i += blockDim.x) {
      const uint4 four = reinterpret_cast<const uint4*>(keys)[i];
      const uint32_t key[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int k = 0; k < 4; ++k)
#pragma unroll
        for (uint32_t digit = 1; digit < 4; ++digit) count[digit - 1] += key[k] >= low + (digit << shift) ? 1 : 0;
    }
    for (int& c : count) c = __reduce_add_sync(~0u, c);
    sums.add(count, before, total);
    width = 1u << shift;
    int digit = 3;
    while (digit > 0 && total[digit - 1] < wanted) --digit;
    if (digit < 3) above = total[digit];
    if (digit > 0) from_low = total[digit - 1];
    low += static_cast<uint32_t>(digit) << shift;
  }
  return {low, width, wanted - above};
}

/// A block per expert. Shared memory: sums, first row and count of the expert, its keys if they fit.
__global__ void __launch_bounds__(kSelectWarps * 32) select_kernel(const __grid_constant__ Params p) {
  const int expert = static_cast<int>(blockIdx.x), lane = threadIdx.x % 32;
  auto* shared = dynamic_shared<int32_t>();
  SelectSums sums(shared);
  int32_t* own = shared + SelectSums::kBytes / 4;
  const uint32_t* keys = p.keys_ET + int64_t{expert} * p.padded_tokens;
  if (p.stage_keys) {
    auto* staged = reinterpret_cast<uint4*>(own + 4);
    for (int i = threadIdx.x; i < p.padded_tokens / 4; i += blockDim.x) staged[i] = reinterpret_cast<const uint4*>(keys)[i];
    keys = reinterpret_cast<const uint32_t*>(staged);
  }
  if (threadIdx.x < 32) {
    const auto count = [&](int e) { return rounded_count(p.args.counts_E[e], p.tokens); };
    place_experts(p.experts, p.args.offsets_E1, p.args.tiles_E3, count, [&](int e, int row) {
      if (e != expert) return;
      own[0] = row;
      own[1] = count(e);
    });
  }
  __syncthreads();
  const int first_row = own[0];
  const Threshold threshold = find_threshold(keys, p.padded_tokens, own[1], sums);

  int selected_before = 0, ties_before = 0;  // among the tokens of earlier rounds
  for (int first = 0; first < p.padded_tokens; first += kSelectWarps * 32) {
    const int t = first + static_cast<int>(threadIdx.x);
    const uint32_t key = t < p.padded_tokens ? keys[t] : 0;
    const bool above = threshold.selects(key), tie = threshold.is_tie(key);
    const unsigned above_lanes = __ballot_sync(~0u, above), tie_lanes = __ballot_sync(~0u, tie), lower = (1u << lane) - 1;
    const int count[2] = {__popc(above_lanes), __popc(tie_lanes)};
    int before[2], total[2];
    sums.add(count, before, total);
    const int tie_rank = ties_before + before[1] + __popc(tie_lanes & lower);
    const bool selected = above || (tie && tie_rank < threshold.ties);
    const int row = first_row + selected_before + before[0] + __popc(above_lanes & lower) + min(tie_rank, threshold.ties);
    const unsigned selected_lanes = __ballot_sync(~0u, selected);
    if (selected) {
      p.args.tokens_R[row] = t;
      p.gates_of_rows[row] = float_of_bits(key & ~kChosen);
    }
    if (lane == 0 && t < p.padded_tokens) {
      p.words[int64_t{t / 32} * p.experts + expert] = {selected_lanes, row};
      if (selected_lanes) atomicAdd(p.piece_slots + t / kPieceTokens, __popc(selected_lanes));
    }
    selected_before += total[0];
    ties_before += total[1];
  }
}

/// visit(e, word) for every expert, for the 32 tokens of the warp.
template <class Visit>
__device__ void for_words(const Params& p, int word_row, Visit&& visit) {
  const int lane = threadIdx.x % 32;
  for (int group = 0; group < p.experts; group += 32) {
    Word mine{0, 0};
    if (group + lane < p.experts) mine = p.words[int64_t{word_row} * p.experts + group + lane];
    for (int i = 0; i < min(p.experts - group, 32); ++i)
      visit(group + i, Word{__shfl_sync(~0u, mine.tokens, i), __shfl_sync(~0u, mine.first_row, i)});
  }
}

constexpr int kPlaceWarps = kPieceTokens / 32;

/// A lane per token, a block per piece.
__global__ void __launch_bounds__(kPieceTokens) place_kernel(const __grid_constant__ Params p) {
  const int lane = threadIdx.x % 32, t = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  int earlier = 0, all = 0;
  for (int piece = lane; piece < static_cast<int>(gridDim.x); piece += 32) {
    const int slots = p.piece_slots[piece];
    all += slots;
    earlier += piece < static_cast<int>(blockIdx.x) ? slots : 0;
  }
  earlier = __reduce_add_sync(~0u, earlier);
  all = __reduce_add_sync(~0u, all);

  int own = 0;
  for_words(p, t / 32, [&](int, Word word) { own += word.tokens >> lane & 1; });
  int through = own;  // slots of the warp's tokens up to this one
  for (int step = 1; step < 32; step *= 2) {
    const int more = __shfl_up_sync(~0u, through, step);
    if (lane >= step) through += more;
  }
  const int of_warp[1] = {__shfl_sync(~0u, through, 31)};
  int before[1], total[1];
  BlockSums<kPlaceWarps>(dynamic_shared<int32_t>()).add(of_warp, before, total);
  const int first = earlier + before[0];
  int slot = first + through - own;
  if (t <= p.tokens) p.args.token_offsets_T1[t] = slot;
  for_words(p, t / 32, [&](int e, Word word) {
    if (!(word.tokens >> lane & 1)) return;
    const int row = word.first_row + __popc(word.tokens & ((1u << lane) - 1));
    p.args.experts_R[slot] = e;
    p.args.inverse_R[slot] = row;
    p.args.sorted_R[row] = slot++;
  });
  __syncwarp();
  for (int i = first + lane; i < first + of_warp[0]; i += 32) p.args.gates_R[i] = p.gates_of_rows[p.args.inverse_R[i]];

  for (int64_t i = all + t; i < p.args.num_slots; i += int64_t{gridDim.x} * blockDim.x) {
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
  if (router.num_experts > 1024 || router.top_k > 64)
    throw KernelError("[token_rounding] E must be at most 1024 and K at most 64, got E " + std::to_string(router.num_experts) +
                      " and K " + std::to_string(router.top_k));
}

}  // namespace

int64_t token_rounding_key_stride(int64_t num_tokens) { return num_tokens / kPieceTokens * kPieceTokens + kPieceTokens; }

int64_t token_rounding_workspace_bytes(const TokenRoundingArgs& args) {
  const int64_t padded = token_rounding_key_stride(args.router.num_tokens), experts = args.router.num_experts;
  return padded * experts * 4 + padded / 32 * experts * 8 + args.num_slots * 4 + padded / kPieceTokens * 4;
}

void token_rounding_fwd(const TokenRoundingArgs& args, cudaStream_t stream) {
  check(args.router);
  if (args.num_slots >= int64_t{1} << 31)
    throw KernelError("[token_rounding] slots must be below 2^31, got " + std::to_string(args.num_slots));
  const int64_t padded = token_rounding_key_stride(args.router.num_tokens), experts = args.router.num_experts;
  auto* workspace = static_cast<char*>(args.workspace);
  const auto part = [&](int64_t bytes) { return std::exchange(workspace, workspace + bytes); };
  Params params{.args = args,
                .tokens = static_cast<int>(args.router.num_tokens),
                .experts = static_cast<int>(experts),
                .padded_tokens = static_cast<int>(padded),
                .keys_ET = reinterpret_cast<uint32_t*>(part(padded * experts * 4)),
                .words = reinterpret_cast<Word*>(part(padded / 32 * experts * 8)),
                .gates_of_rows = reinterpret_cast<float*>(part(args.num_slots * 4)),
                .piece_slots = reinterpret_cast<int32_t*>(part(0))};
  with_lane_experts(experts, [&](auto lane_experts) {
    launch(kOp, keys_kernel<decltype(lane_experts)::value>, padded / kKeyTokens, kWarps * 32,
           static_cast<uint32_t>(experts * kKeyStride * 4), params, stream);
  });
  const int64_t select_bytes = SelectSums::kBytes + 16, staged_bytes = select_bytes + padded * 4;
  params.stage_keys = staged_bytes <= kMaxSharedBytes;
  launch(kOp, select_kernel, experts, kSelectWarps * 32, static_cast<uint32_t>(params.stage_keys ? staged_bytes : select_bytes),
         params, stream);
  launch(kOp, place_kernel, padded / kPieceTokens, kPieceTokens, BlockSums<kPlaceWarps>::kBytes, params, stream);
}

void token_rounding_bwd(const TokenRoundingBwdArgs& args, cudaStream_t stream) {
  check(args.router);
  if (args.router.num_tokens == 0) return;
  with_lane_experts(args.router.num_experts, [&](auto lane_experts) {
    launch(kOp, bwd_kernel<decltype(lane_experts)::value>, (args.router.num_tokens + kWarps - 1) / kWarps, kWarps * 32, 0, args,
           stream);
  });
}

}  // namespace scatterlm::kernels

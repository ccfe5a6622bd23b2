// Token rounding: each expert takes as many tokens as fill its tiles. T tokens, E experts, K chosen per token by the router.
#pragma once
#include "lib/ops/router.h"
#include "lib/ops/routing.h"

namespace scatterlm::ops {

/// Rows of a tile of the grouped GEMMs.
constexpr int64_t kRoundingTile = 128;

struct RoundedRouting {
  at::Tensor gates_R;  ///< of each slot, differentiable with respect to the logits, also through the router's gates
  Routing routing;     ///< with token_offsets_T1
};

/// Rounds the number of tokens of every expert to whole tiles, by rule NR-f of Guo et al., arXiv 2512.14080, algorithm 4: an
/// expert to which the router gave f tokens takes n, the multiple of 128 nearest to f (the lower one from the middle; at most
/// T). `chosen` is the result of router() with these options.
/// - n < f drops the f - n chosen tokens of the lowest gates. Other gates of such a token stay as they are; it may end without
///   an expert.
/// - n > f fills with the n - f unchosen tokens of the highest scores. The gate of such a pair is its score, times
///   routed_scaling_factor: P = softmax over all experts; of sigmoid scores q, or q / sum of all q with norm_topk_prob. So it
///   weighs no more than it would have, had the router chosen it.
/// Equal ones: the lower token stays, or comes in. NaN counts as the highest. Selection has no gradient, gates have.
///
/// Slots ascend in (token, expert). Only the device knows their number, offsets_E1[E]; the index tensors have R = max_slots()
/// entries. Past the last slot, sorted and inverse are the identity, tokens and gates are 0, and no op reads those rows.
RoundedRouting token_rounding(const RouterOutput& chosen, const RouterOptions& options);

/// The most slots that there can be after rounding: min(T E, T K + E 128 / 2).
int64_t max_slots(int64_t num_tokens, int64_t num_experts, int64_t top_k);

// Backends, of which token_rounding.cpp picks one.
namespace ref {  // LibTorch's own operations, on any device and without waiting for it
RoundedRouting token_rounding(const RouterOutput& chosen, const RouterOptions& options);
}
namespace cuda {  // nothing where no kernel takes these tensors
std::optional<RoundedRouting> token_rounding(const RouterOutput& chosen, const RouterOptions& options);
}

}  // namespace scatterlm::ops

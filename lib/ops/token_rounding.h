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

/// Rule NR-f of Guo et al., arXiv 2512.14080, algorithm 4: an expert that the router gave f tokens takes n, the multiple of 128
/// next to f (from the middle down to the lower one, and at most T).
/// - n < f drops the f - n chosen tokens of the lowest gates. Other gates of such a token stay as they are; it may end without
///   an expert.
/// - n > f fills with the n - f unchosen tokens of the highest scores. The gate of such a pair is its score, times
///   routed_scaling_factor: P = softmax over all experts; of sigmoid scores q, or q / sum of all q with norm_topk_prob. So it
///   weighs no more than it would have, had the router chosen it.
/// Equal ones: the lower token stays, or comes in. NaN counts as the highest. Selection has no gradient, gates have.
///
/// Slots ascend in (token, expert). Their number is known to the device alone, it is offsets_E1[E]; lists have R = max_slots()
/// entries. In those behind, sorted and inverse are the identity, tokens and gates 0, and nothing reads their rows.
RoundedRouting token_rounding(const RouterOutput& chosen, const RouterOptions& options);

/// min(T E, T K + E 128 / 2)
int64_t max_slots(int64_t num_tokens, int64_t num_experts, int64_t top_k);

namespace ref {
/// The same in plain tensor operations on any device, without waiting for it.
RoundedRouting token_rounding(const RouterOutput& chosen, const RouterOptions& options);
}  // namespace ref

}  // namespace scatterlm::ops

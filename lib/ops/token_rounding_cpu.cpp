// Token rounding in LibTorch's own operations, on any device.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lib/ops/router_scores.h"
#include "lib/ops/token_rounding.h"

namespace scatterlm::ops {
namespace {

/// What an unchosen pair is ranked by and weighs.
at::Tensor fill_scores(const at::Tensor& logits_TE, const RouterOptions& options) {
  if (options.score == RouterScore::kSoftmax) return at::softmax(logits_TE, 1) * options.routed_scaling_factor;
  const auto scores_TE = at::sigmoid(logits_TE);
  const auto shares_TE = options.norm_topk_prob ? scores_TE / (scores_TE.sum(1, true) + kSigmoidEps) : scores_TE;
  return shares_TE * options.routed_scaling_factor;
}

/// Integers in the order of the gates, all of unchosen pairs below all of chosen ones: the bits of numbers that are not
/// negative ascend as the numbers do, NaN last.
at::Tensor ranking_keys(const at::Tensor& gates_TE, const at::Tensor& chosen_TE) {
  const auto integer = gates_TE.scalar_type() == at::kDouble ? at::kLong : at::kInt;
  const auto bits_TE = gates_TE.abs().view(integer);
  const auto sign_bit = integer == at::kLong ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min();
  return at::where(chosen_TE, bits_TE, bits_TE.bitwise_or(sign_bit));
}

/// How many tokens each expert takes.
at::Tensor rounded_counts(const at::Tensor& counts_E, int64_t num_tokens) {
  const auto rest_E = counts_E.remainder(kRoundingTile);
  const auto up_E = (2 * rest_E > kRoundingTile).to(counts_E.scalar_type()) * kRoundingTile;
  return (counts_E - rest_E + up_E).clamp_max(num_tokens);
}

/// [T, E] bool: the pairs that stay.
at::Tensor select(const at::Tensor& keys_TE, const at::Tensor& rounded_E) {
  const auto order_TE = std::get<1>(at::sort(keys_TE, /*stable=*/true, /*dim=*/0, /*descending=*/true));
  const auto ranks_T1 = at::arange(keys_TE.size(0), order_TE.options()).unsqueeze(1);
  return at::empty_like(order_TE).scatter_(0, order_TE, ranks_T1.expand_as(order_TE)) < rounded_E;
}

/// Exclusive sums with their total at the end, int32.
at::Tensor offsets_of(const at::Tensor& counts) { return at::constant_pad_nd(at::cumsum(counts, 0), {1, 0}).to(at::kInt); }

/// Position of each true element among all of them, `behind` for the others. Scattering by it into behind + 1 elements and
/// taking the first `behind` keeps what belongs to true elements.
at::Tensor positions_of(const at::Tensor& flags, int64_t behind) { return at::where(flags, at::cumsum(flags, 0) - 1, behind); }

at::Tensor scatter_list(const at::Tensor& list_R, const at::Tensor& positions, const at::Tensor& values) {
  return at::constant_pad_nd(list_R, {0, 1}).scatter_(0, positions, values).slice(0, 0, list_R.size(0));
}

/// The routing of the selected pairs, and in pairs_R the pair t E + e of each slot (0 behind the last).
Routing make_lists(const at::Tensor& selected_TE, const at::Tensor& rounded_E, int64_t top_k, at::Tensor& pairs_R) {
  const int64_t tokens = selected_TE.size(0), experts = selected_TE.size(1), bound = max_slots(tokens, experts, top_k);
  const auto index = selected_TE.options().dtype(at::kLong);
  const auto slots_of_pair = positions_of(selected_TE.flatten(), bound);
  const auto rows_of_pair = positions_of(selected_TE.t().flatten(), bound).view({experts, tokens}).t().flatten();
  const auto pair = at::arange(tokens * experts, index), zero_R = at::zeros({bound}, index),
             itself_R = at::arange(bound, index);
  pairs_R = scatter_list(zero_R, slots_of_pair, pair);
  Routing routing{.num_tokens = tokens, .top_k = top_k, .num_experts = experts};
  routing.sorted_R = scatter_list(itself_R, rows_of_pair, slots_of_pair).to(at::kInt);
  routing.inverse_R = scatter_list(itself_R, slots_of_pair, rows_of_pair).to(at::kInt);
  routing.tokens_R = scatter_list(zero_R, rows_of_pair, at::floor_divide(pair, experts)).to(at::kInt);
  routing.offsets_E1 = offsets_of(rounded_E);
  const auto tiles_E1 = offsets_of(at::floor_divide(rounded_E + kRoundingTile - 1, kRoundingTile));
  routing.tiles_E3 = at::cat({tiles_E1, at::zeros({2}, tiles_E1.options())});
  routing.token_offsets_T1 = offsets_of(selected_TE.sum(1));
  return routing;
}

}  // namespace

RoundedRouting ref::token_rounding(const RouterOutput& chosen, const RouterOptions& options) {
  const auto ids_TK = chosen.ids_TK.to(at::kLong);
  const auto gates_TE = fill_scores(chosen.logits_TE, options).scatter(1, ids_TK, chosen.gates_TK);
  RoundedRouting out;
  at::Tensor pairs_R;
  {
    at::NoGradGuard no_grad;
    const auto chosen_TE = at::zeros_like(gates_TE, at::kBool).scatter_(1, ids_TK, true);
    const auto rounded_E = rounded_counts(chosen.counts_E, gates_TE.size(0));
    const auto selected_TE = select(ranking_keys(gates_TE, chosen_TE), rounded_E);
    out.routing = make_lists(selected_TE, rounded_E, options.num_experts_per_tok, pairs_R);
  }
  const auto& offsets_E1 = out.routing.offsets_E1;
  const auto behind_R = at::arange(pairs_R.size(0), offsets_E1.options()) >= offsets_E1[-1];
  out.gates_R = gates_TE.flatten().index_select(0, pairs_R).masked_fill(behind_R, 0);
  return out;
}

}  // namespace scatterlm::ops

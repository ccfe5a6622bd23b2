// Token rounding by its definition, pair by pair in plain C++, and what its tests share.
#pragma once
#include <algorithm>

#include "lib/ops/moe_mlp.h"
#include "lib/ops/token_rounding.h"
#include "tests/ops/check_op.h"
#include "tests/ops/poisoned_memory.h"
#include "tests/ops/reference.h"

namespace scatterlm::test::rounding {

/// The router of given logits: x = logits, weight = identity.
inline ops::RouterOutput route(const at::Tensor& logits_TE, const ops::RouterOptions& options) {
  return ops::router(logits_TE, at::eye(logits_TE.size(1), logits_TE.options()), {}, options);
}

/// Gates of all pairs, would they be selected: of the router for what it chose, otherwise the score. Differentiable.
inline at::Tensor gates_of_pairs(const at::Tensor& logits_TE, const ops::RouterOptions& o) {
  const bool softmax = o.score == RouterScore::kSoftmax;
  auto scores = softmax ? at::softmax(logits_TE, 1) : at::sigmoid(logits_TE);
  if (!softmax && o.norm_topk_prob) scores = scores / scores.sum(1, true);
  const auto routed = reference::router(logits_TE, at::eye(logits_TE.size(1), logits_TE.options()), {}, o);
  return (scores * o.routed_scaling_factor).scatter(1, routed.ids, routed.gates);
}

/// n of f: the multiple of 128 next to it, the lower one from the middle, at most T.
inline int64_t rounded_count(int64_t count, int64_t tokens) {
  const int64_t down = count / 128 * 128, up = (count + 127) / 128 * 128;
  return std::min(up - count < count - down ? up : down, tokens);
}

/// [T, E] bool, by sorting each expert's column.
inline at::Tensor selection(const at::Tensor& gates_TE, const at::Tensor& ids_TK) {
  const int64_t tokens = gates_TE.size(0), experts = gates_TE.size(1);
  const auto chosen_TE = at::zeros({tokens, experts}, at::kBool).scatter_(1, ids_TK.to(at::kLong), true);
  const auto gates = gates_TE.detach().to(at::kDouble);
  auto selected_TE = at::zeros({tokens, experts}, at::kBool);
  const auto is_chosen = chosen_TE.accessor<bool, 2>();
  const auto gate = gates.accessor<double, 2>();
  auto selected = selected_TE.accessor<bool, 2>();
  for (int64_t e = 0; e < experts; ++e) {
    std::vector<std::tuple<bool, double, int64_t>> column;  // chosen first, then the highest, then the lowest token
    int64_t count = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      count += is_chosen[t][e];
      column.emplace_back(!is_chosen[t][e], -gate[t][e], t);
    }
    std::sort(column.begin(), column.end());
    for (int64_t i = 0; i < rounded_count(count, tokens); ++i) selected[std::get<2>(column[i])][e] = true;
  }
  return selected_TE;
}

inline std::vector<int32_t> to_vector(const at::Tensor& x) {
  const auto host = x.cpu().to(at::kInt).contiguous();
  return {host.const_data_ptr<int32_t>(), host.const_data_ptr<int32_t>() + host.numel()};
}

/// The lists of `out` say exactly selected_TE [T, E].
inline void require_lists(const ops::RoundedRouting& out, const at::Tensor& selected_TE, int64_t top_k) {
  const int64_t tokens = selected_TE.size(0), experts = selected_TE.size(1), bound = ops::max_slots(tokens, experts, top_k);
  std::vector<int32_t> sorted(bound), inverse(bound), token(bound), offsets{0}, tiles{0}, token_offsets{0};
  for (int64_t i = 0; i < bound; ++i) sorted[i] = inverse[i] = static_cast<int32_t>(i);
  auto slots_TE = at::zeros({tokens, experts}, at::kInt);
  const auto selected = selected_TE.accessor<bool, 2>();
  auto slot_of = slots_TE.accessor<int32_t, 2>();
  int32_t slots = 0, rows = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t e = 0; e < experts; ++e)
      if (selected[t][e]) slot_of[t][e] = slots++;
    token_offsets.push_back(slots);
  }
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t t = 0; t < tokens; ++t) {
      if (!selected[t][e]) continue;
      const int32_t slot = slot_of[t][e];
      token[rows] = static_cast<int32_t>(t);
      sorted[rows] = slot;
      inverse[slot] = rows++;
    }
    tiles.push_back(tiles.back() + (rows - offsets.back() + 127) / 128);
    offsets.push_back(rows);
  }
  tiles.insert(tiles.end(), {0, 0});
  REQUIRE(out.routing.num_tokens == tokens);
  REQUIRE(out.routing.top_k == top_k);
  REQUIRE(out.routing.num_experts == experts);
  REQUIRE(rows <= bound);
  REQUIRE(to_vector(out.routing.offsets_E1) == offsets);
  REQUIRE(to_vector(out.routing.tiles_E3) == tiles);
  REQUIRE(to_vector(out.routing.token_offsets_T1) == token_offsets);
  REQUIRE(to_vector(out.routing.tokens_R) == token);
  REQUIRE(to_vector(out.routing.sorted_R) == sorted);
  REQUIRE(to_vector(out.routing.inverse_R) == inverse);
}

/// Gates of the selected pairs in the order of slots, 0 behind.
inline at::Tensor gates_of_slots(const at::Tensor& gates_TE, const at::Tensor& selected_TE, int64_t top_k) {
  const auto gates = gates_TE.masked_select(selected_TE);
  return at::constant_pad_nd(gates, {0, ops::max_slots(selected_TE.size(0), selected_TE.size(1), top_k) - gates.size(0)});
}

/// Random logits in which some experts are liked more: counts from almost none to almost all.
inline at::Tensor skewed_logits(int64_t tokens, int64_t experts, uint64_t seed = 1) {
  return randn({tokens, experts}, seed) + 1.5 * randn({experts}, seed + 100);
}

/// K = 1: the first f_0 tokens choose expert 0, the next f_1 expert 1, ...
inline at::Tensor logits_of_counts(const std::vector<int64_t>& counts, int64_t seed = 1) {
  int64_t tokens = 0;
  for (const int64_t count : counts) tokens += count;
  auto logits =
      at::rand({tokens, static_cast<int64_t>(counts.size())}, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble);
  int64_t first = 0;
  for (size_t e = 0; e < counts.size(); ++e) {
    logits.slice(0, first, first + counts[e]).select(1, static_cast<int64_t>(e)).add_(3);
    first += counts[e];
  }
  return logits;
}

/// The MoE MLP behind a rounded router: x, w1, w2, logits. As the op, and as a dense sum over all experts.
inline Op mlp_op(const ops::RouterOptions& options) {
  return [=](const Tensors& in) {
    const auto rounded = ops::token_rounding(route(in[3], options), options);
    return ops::moe_mlp(in[0], in[1], in[2], rounded.gates_R, rounded.routing, Activation::kSwiglu);
  };
}
inline Op mlp_formula(const ops::RouterOptions& options, const at::Tensor& selected_TE) {
  return [=](const Tensors& in) {
    const auto gates_TE = gates_of_pairs(in[3], options) * selected_TE;
    const auto all_TE = at::arange(selected_TE.size(1), at::kInt).expand({selected_TE.size(0), -1});
    return reference::moe_mlp(in[0], in[1], in[2], gates_TE, all_TE, Activation::kSwiglu);
  };
}
inline Tensors mlp_inputs(const at::Tensor& logits_TE, int64_t model, int64_t width) {
  const int64_t experts = logits_TE.size(1);
  return {randn({logits_TE.size(0), model}, 1), randn({experts, 2 * width, model}, 2) / std::sqrt(model),
          randn({experts, model, width}, 3) / std::sqrt(width), logits_TE};
}

}  // namespace scatterlm::test::rounding

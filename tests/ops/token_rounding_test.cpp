#include "lib/ops/token_rounding.h"

#include "lib/ops/device.h"
#include "tests/ops/router_forms.h"
#include "tests/ops/token_rounding_cases.h"

namespace scatterlm {
namespace {

using ops::RouterOptions;
using test::all_forms;
using namespace test::rounding;

std::vector<int64_t> taken(const ops::RoundedRouting& out) {
  const auto counts = to_vector(out.routing.offsets_E1.diff());
  return {counts.begin(), counts.end()};
}

/// [T, E]: the gates of selected pairs, 0 for the others.
at::Tensor gates_of_selected(const ops::RoundedRouting& out) {
  const int64_t experts = out.routing.num_experts;
  auto gates_TE = at::zeros({out.routing.num_tokens, experts}, out.gates_R.options());
  for (int64_t e = 0; e < experts; ++e) {
    const auto rows = [&](const at::Tensor& list_R) {
      return list_R.slice(0, out.routing.offsets_E1[e].item<int64_t>(), out.routing.offsets_E1[e + 1].item<int64_t>());
    };
    const auto gates = out.gates_R.index_select(0, rows(out.routing.sorted_R));
    gates_TE.select(1, e).index_copy_(0, rows(out.routing.tokens_R).to(at::kLong), gates);
  }
  return gates_TE;
}

}  // namespace

TEST_CASE("token_rounding: an expert takes the multiple of 128 next to its count", "[token_rounding]") {
  struct Case {
    std::vector<int64_t> counts, taken;
  };
  const auto c = GENERATE(values<Case>({{{128, 256, 384}, {128, 256, 384}},  // nothing to do
                                        {{63, 65, 128}, {0, 128, 128}},      // below half a tile: emptied
                                        {{64, 192, 320}, {0, 128, 256}},     // in the middle: down
                                        {{1, 127, 129, 191, 193}, {0, 128, 128, 128, 256}},
                                        {{200}, {200}},  // 256 is more than there are tokens
                                        {{0, 100}, {0, 100}},
                                        {{64}, {0}}}));
  const RouterOptions options{.num_experts_per_tok = 1};
  const auto out = ops::token_rounding(route(logits_of_counts(c.counts), options), options);
  REQUIRE(taken(out) == c.taken);
}

TEST_CASE("token_rounding: lists and gates of every form are those of the definition", "[token_rounding]") {
  struct Size {
    int64_t tokens, experts, top_k;
  };
  const auto size = GENERATE(Size{1, 1, 1}, Size{200, 1, 1}, Size{150, 3, 3}, Size{300, 5, 2}, Size{129, 4, 1}, Size{600, 7, 3},
                             Size{40, 6, 2});
  const auto form = GENERATE_COPY(from_range(all_forms(size.top_k)));
  const auto dtype = GENERATE(at::kDouble, at::kFloat);
  INFO("T " << size.tokens << ", E " << size.experts << ", K " << size.top_k);
  const auto logits = skewed_logits(size.tokens, size.experts).to(dtype);
  const auto chosen = route(logits, form);
  const auto out = ops::token_rounding(chosen, form);
  const auto gates = gates_of_pairs(logits, form);
  const auto selected = selection(gates, chosen.ids_TK);
  require_lists(out, selected, size.top_k);
  REQUIRE(out.gates_R.scalar_type() == dtype);
  REQUIRE(test::max_abs(out.gates_R - gates_of_slots(gates, selected, size.top_k)) < (dtype == at::kFloat ? 1e-6 : 1e-14));
}

TEST_CASE("token_rounding: kept gates are the router's to the bit, also of a token that lost another expert",
          "[token_rounding]") {
  const RouterOptions options{.num_experts_per_tok = 2};
  const auto chosen = route(skewed_logits(400, 6).to(at::kFloat), options);
  const auto out = ops::token_rounding(chosen, options);
  const auto pairs = at::zeros({400, 6}).scatter_(1, chosen.ids_TK.to(at::kLong), chosen.gates_TK);
  const auto selected = selection(gates_of_pairs(skewed_logits(400, 6), options), chosen.ids_TK);
  const auto kept = gates_of_slots(pairs, selected, 2);
  REQUIRE(at::equal(out.gates_R * (kept > 0), kept));
  const auto chosen_TE = pairs > 0, dropped = chosen_TE & ~selected;
  REQUIRE((dropped.any(1) & (chosen_TE & selected).any(1)).sum().item<int64_t>() > 20);  // such tokens are there
  REQUIRE((selected & ~chosen_TE).sum().item<int64_t>() > 20);                           // and filled pairs
}

TEST_CASE("token_rounding: a filled pair weighs no more than if the router had chosen it", "[token_rounding]") {
  const auto form = GENERATE(from_range(all_forms(2)));
  const auto logits = skewed_logits(300, 5);
  auto all = form;
  all.num_experts_per_tok = 3;  // a larger K lowers gates that sum to 1
  const auto gates_TE = gates_of_selected(ops::token_rounding(route(logits, form), form));
  const auto third = route(logits, all);
  const auto filled = gates_TE.gather(1, third.ids_TK.slice(1, 2).to(at::kLong)), limit = third.gates_TK.slice(1, 2);
  REQUIRE((filled > 0).sum().item<int64_t>() > 10);  // 0: not selected
  REQUIRE((filled <= limit + 1e-12).all().item<bool>());
}

TEST_CASE("token_rounding: among equals the lower token stays or comes in", "[token_rounding]") {
  const RouterOptions options{.num_experts_per_tok = 1};
  const auto down = ops::token_rounding(route(at::tensor({1.0, 0.0}).repeat({150, 1}), options), options);
  REQUIRE(taken(down) == std::vector<int64_t>{128, 0});
  REQUIRE(at::equal(down.routing.tokens_R.slice(0, 0, 128), at::arange(128, at::kInt)));
  // 100 tokens choose expert 0, the last 50 expert 1: tokens 100 .. 127 fill expert 0.
  auto logits = at::tensor({1.0, 0.0}).repeat({150, 1});
  logits.slice(0, 100).copy_(at::tensor({0.0, 1.0}));
  const auto up = ops::token_rounding(route(logits, options), options);
  REQUIRE(taken(up) == std::vector<int64_t>{128, 0});
  REQUIRE(at::equal(up.routing.tokens_R.slice(0, 0, 128), at::arange(128, at::kInt)));
}

TEST_CASE("token_rounding: NaN logits give valid lists and show in the gates", "[token_rounding]") {
  const auto form = GENERATE(from_range(all_forms(2)));
  auto logits = skewed_logits(300, 4);
  auto gates = gates_of_pairs(logits, form);
  gates[7].fill_(INFINITY);
  logits[7].fill_(NAN);
  const auto chosen = route(logits, form);
  const auto out = ops::token_rounding(chosen, form);
  const auto selected = selection(gates, chosen.ids_TK);
  require_lists(out, selected, 2);
  REQUIRE(selected[7].any().item<bool>());
  REQUIRE(out.gates_R.isnan().sum().item<int64_t>() == selected[7].sum().item<int64_t>());
}

TEST_CASE("token_rounding: no tokens", "[token_rounding]") {
  const RouterOptions options{.num_experts_per_tok = 2};
  const auto out = ops::token_rounding(route(at::empty({0, 3}), options), options);
  require_lists(out, at::empty({0, 3}, at::kBool), 2);
}

TEST_CASE("token_rounding: the MoE MLP behind it, values and gradients", "[token_rounding]") {
  const auto form = GENERATE(from_range(all_forms(2)));
  auto logits = skewed_logits(150, 6, 3);
  logits.slice(0, 0, 30).slice(1, 4).add_(8);  // 30 tokens of experts that are emptied
  const auto inputs = mlp_inputs(logits, 3, 2);
  const auto chosen = route(inputs[3], form);
  const auto selected = selection(gates_of_pairs(inputs[3], form), chosen.ids_TK);
  const auto chosen_TE = at::zeros({150, 6}, at::kBool).scatter_(1, chosen.ids_TK.to(at::kLong), true);
  REQUIRE((chosen_TE & ~selected).any().item<bool>());
  REQUIRE((selected & ~chosen_TE).any().item<bool>());
  test::require_equals_reference(mlp_op(form), mlp_formula(form, selected), inputs);
  const auto result = test::run(mlp_op(form), inputs);
  const auto idle = ~selected.any(1);
  REQUIRE(idle.any().item<bool>());
  REQUIRE(test::max_abs(result.value.index({idle})) == 0);

  const test::PoisonedMemory poisoned;  // rows behind the last are never data
  const auto again = test::run(mlp_op(form), inputs);
  REQUIRE(at::equal(result.value, again.value));
  for (size_t i = 0; i < inputs.size(); ++i) REQUIRE(at::equal(result.grads[i], again.grads[i]));
}

TEST_CASE("token_rounding: gradients equal finite differences", "[token_rounding]") {
  const auto form = GENERATE(from_range(all_forms(2)));
  const auto gates = [&](const test::Tensors& in) { return ops::token_rounding(route(in[0], form), form).gates_R; };
  test::require_finite_differences(gates, {skewed_logits(140, 3, 5)});
}

TEST_CASE("token_rounding: same bits for any number of threads", "[token_rounding]") {
  const RouterOptions options{.num_experts_per_tok = 2};
  auto inputs = mlp_inputs(skewed_logits(500, 8), 16, 8);
  for (auto& x : inputs) x = x.to(at::kFloat);
  test::require_thread_independent(mlp_op(options), inputs);
}

TEST_CASE("token_rounding: on a GPU", "[token_rounding][.gpu]") {
  const auto form = GENERATE(from_range(all_forms(3)));
  const auto logits = skewed_logits(600, 7).to(at::kFloat);
  const auto chosen = route(logits.to(at::kCUDA), form);
  const auto selected = selection(gates_of_pairs(logits, form), chosen.ids_TK.cpu());
  require_lists(ops::token_rounding(chosen, form), selected, 3);
  require_lists(ops::ref::token_rounding(chosen, form), selected, 3);
}

TEST_CASE("token_rounding: the MoE MLP behind it, on a GPU", "[token_rounding][.gpu]") {
  ops::assume_compute_capability(GENERATE(80, 0));  // the portable kernels, then the GPU's own
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const RouterOptions options{.num_experts_per_tok = 2};
  const auto logits = skewed_logits(300, 6, 3).to(at::kFloat);
  const auto selected = selection(gates_of_pairs(logits, options), route(logits, options).ids_TK);
  const auto formula = [&](const test::Tensors& in) {
    test::Tensors host;
    for (const auto& x : in) host.push_back(x.cpu());
    return mlp_formula(options, selected)(host).to(in[0].device());
  };
  test::require_low_precision(mlp_op(options), formula, mlp_inputs(logits.to(at::kDouble), 64, 32),
                              {.dtype = dtype, .wide = {3}, .device = at::kCUDA});
}

}  // namespace scatterlm

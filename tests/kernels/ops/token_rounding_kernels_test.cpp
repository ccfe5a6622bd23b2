// Token rounding as its op calls the kernels, on CPU tensors: compiled for tests/kernels/emulated.
#include "lib/ops/device.h"
#include "tests/ops/router_forms.h"
#include "tests/ops/token_rounding_cases.h"

namespace scatterlm {
namespace {

using test::all_forms;
using test::Tensors;
using namespace test::rounding;

struct RoundedSize {
  int64_t tokens, experts, top_k;
};

/// Equal to the definition and to the twin, entry by entry.
void require_kernel_is_right(const at::Tensor& logits_TE, const ops::RouterOptions& form) {
  const test::PoisonedMemory poisoned;
  const auto chosen = route(logits_TE, form);
  const auto out = ops::token_rounding(chosen, form), twin = ops::ref::token_rounding(chosen, form);
  const auto gates = gates_of_pairs(logits_TE, form);
  const auto selected = selection(gates, chosen.ids_TK);
  require_lists(out, selected, form.num_experts_per_tok);
  require_lists(twin, selected, form.num_experts_per_tok);
  REQUIRE(test::max_abs(out.gates_R - twin.gates_R) < 1e-6);
}

at::Tensor random_logits(const RoundedSize& size) { return skewed_logits(size.tokens, size.experts).to(at::kFloat); }

}  // namespace

TEST_CASE("token_rounding on kernels: lists and gates are the twin's", "[token_rounding]") {
  const auto size = GENERATE(RoundedSize{0, 3, 2}, RoundedSize{1, 1, 1}, RoundedSize{127, 3, 3}, RoundedSize{600, 7, 3},
                             RoundedSize{150, 70, 64});
  require_kernel_is_right(random_logits(size), {.num_experts_per_tok = size.top_k});
}

TEST_CASE("token_rounding on kernels: every form, counts at the borders of tiles", "[token_rounding]") {
  const auto form = GENERATE(from_range(all_forms(1)));
  const auto counts = GENERATE(values<std::vector<int64_t>>({{128, 63, 64, 65}, {191, 192, 193}, {200}}));
  require_kernel_is_right(logits_of_counts(counts).to(at::kFloat), form);
}

TEST_CASE("token_rounding on kernels: among equals the lower token stays or comes in", "[token_rounding]") {
  const auto form = GENERATE(from_range(all_forms(2)));
  require_kernel_is_right(at::zeros({300, 5}), form);
}

TEST_CASE("token_rounding on kernels: NaN logits give the lists of the twin", "[token_rounding]") {
  const auto form = GENERATE(from_range(all_forms(2)));
  auto logits = random_logits({300, 4, 2});
  logits[7].fill_(NAN);
  const auto chosen = route(logits, form);
  const auto out = ops::token_rounding(chosen, form), twin = ops::ref::token_rounding(chosen, form);
  REQUIRE(at::equal(out.routing.sorted_R, twin.routing.sorted_R));
  REQUIRE(at::equal(out.routing.tokens_R, twin.routing.tokens_R));
  REQUIRE(out.gates_R.isnan().any().item<bool>());
  REQUIRE(at::allclose(out.gates_R, twin.gates_R, 1e-5, 1e-6, /*equal_nan=*/true));
}

TEST_CASE("token_rounding on kernels: gradients of every form", "[token_rounding]") {
  const auto size = GENERATE(RoundedSize{150, 6, 2}, RoundedSize{130, 36, 33});
  const auto form = GENERATE_COPY(from_range(all_forms(size.top_k)));
  if (size.top_k > 32 && form.norm_topk_prob) return;  // two slots in a lane: two forms are enough
  const auto op = [&](const Tensors& in) { return ops::token_rounding(route(in[0], form), form).gates_R; };
  const auto formula = [&](const Tensors& in) {
    const auto gates = gates_of_pairs(in[0], form);
    return gates_of_slots(gates, selection(gates, route(in[0].detach().to(at::kFloat), form).ids_TK), size.top_k);
  };
  test::require_low_precision(op, formula, {random_logits(size).to(at::kDouble)}, {.dtype = at::kFloat, .ulps = 8});
}

TEST_CASE("token_rounding on kernels: the MoE MLP behind it, without a look behind the last row", "[token_rounding]") {
  ops::assume_compute_capability(GENERATE(80, 90));
  const ops::RouterOptions options{.num_experts_per_tok = 2};
  auto logits = skewed_logits(250, 6, 3);
  logits.select(1, 0).add_(12);                 // chosen by all tokens: not a multiple of the tile
  logits.slice(0, 0, 30).slice(1, 4).add_(30);  // experts that are emptied
  const auto inputs = mlp_inputs(logits.to(at::kFloat).to(at::kDouble), 72, 40);
  const auto selected = selection(gates_of_pairs(logits, options), route(logits.to(at::kFloat), options).ids_TK);
  REQUIRE((selected.sum(0) == 250).any().item<bool>());
  REQUIRE((selected.sum(1) == 1).any().item<bool>());
  const test::PoisonedMemory poisoned;
  test::require_low_precision(mlp_op(options), mlp_formula(options, selected), inputs, {.dtype = at::kBFloat16, .wide = {3}});
}

}  // namespace scatterlm

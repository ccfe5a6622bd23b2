// The router as its op calls the kernel, on CPU tensors: compiled for tests/kernels/emulated.
#include "lib/ops/router_scores.h"

#include "tests/catch.h"
#include "tests/ops/check_op.h"
#include "tests/ops/router_forms.h"

namespace scatterlm {
namespace {

using test::all_forms;
using test::Tensors;

struct Size {
  int64_t tokens, experts, top_k;
};

}  // namespace

TEST_CASE("router_scores on a GPU: values and gradients of every form", "[router]") {
  const auto size =
      GENERATE(Size{5, 1, 1}, Size{37, 7, 2}, Size{3, 33, 33}, Size{20, 200, 64}, Size{2, 1024, 8}, Size{2100, 64, 8});
  const auto form = GENERATE_COPY(from_range(all_forms(size.top_k)));
  const bool biased = GENERATE(false, true);
  if (size.tokens > 1000 && (biased || form.norm_topk_prob)) return;  // more tokens than blocks x warps: one form is enough
  INFO("T " << size.tokens << ", E " << size.experts << ", K " << size.top_k << ", biased " << biased);
  const auto logits = test::randn({size.tokens, size.experts}, 1).to(at::kFloat);
  const auto bias = biased ? std::optional((0.3 * test::randn({size.experts}, 9)).to(at::kFloat)) : std::nullopt;
  const auto out = ops::router_scores(logits, bias, form);
  const auto wide_bias = biased ? std::optional(bias->to(at::kDouble)) : std::nullopt;
  const auto identity = at::eye(size.experts, at::kDouble);
  const auto truth = reference::router(logits.to(at::kDouble), identity, wide_bias, form);
  REQUIRE(at::equal(out.ids_TK, truth.ids.to(at::kInt)));
  REQUIRE(at::equal(out.counts_E, truth.counts.to(at::kInt)));

  const auto join = [](const at::Tensor& gates, const at::Tensor& prob_sum, const at::Tensor& lse) {
    return at::cat({gates.flatten(), prob_sum, lse.view({1})});
  };
  const auto op = [&](const Tensors& x) {
    const auto y = ops::router_scores(x[0], bias, form);
    return join(y.gates_TK, y.prob_sum_E, y.lse_sq_sum);
  };
  const auto formula = [&](const Tensors& x) {
    const auto wide = x[0].scalar_type() == at::kDouble;
    const auto y = reference::router(x[0], identity.to(x[0].scalar_type()), wide ? wide_bias : bias, form);
    return join(y.gates, y.prob_sum, y.lse_sq_sum);
  };
  test::require_low_precision(op, formula, {logits.to(at::kDouble)}, {.dtype = at::kFloat, .ulps = 4});
}

TEST_CASE("router_scores on a GPU: NaN comes first, ties go to the lower index", "[router]") {
  auto logits = at::zeros({2, 40}, at::kFloat);
  logits[1].fill_(1);
  logits[1][3] = logits[1][35] = 2;
  logits[1][0] = std::nanf("");
  const auto out = ops::router_scores(logits, {}, {.num_experts_per_tok = 40});
  std::vector<int32_t> expected(80);
  for (int i = 0; i < 40; ++i) expected[i] = i;
  expected[41] = 3;
  expected[42] = 35;
  int next = 43;
  for (int i = 1; i < 40; ++i)
    if (i != 3 && i != 35) expected[next++] = i;
  REQUIRE(at::equal(out.ids_TK.flatten(), at::tensor(expected, at::kInt)));
}

}  // namespace scatterlm

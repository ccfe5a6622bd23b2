// The router of few tokens as its op calls the kernels, on CPU tensors: compiled for tests/kernels/emulated.
#include "lib/ops/router.h"

#include <ATen/core/grad_mode.h>

#include "lib/ops/router_scores.h"

#include "tests/ops/check_op.h"

namespace scatterlm {

TEST_CASE("router on kernels: few tokens without a gradient, with their routing", "[router]") {
  const at::NoGradGuard no_grad;
  const int64_t tokens = GENERATE(0, 1, 8, 9), experts = 40, top_k = GENERATE(3, 20), width = GENERATE(16, 12);
  INFO("T " << tokens << ", K " << top_k << ", D " << width);
  const auto x = test::randn({tokens, width}, 1).to(at::kBFloat16), weight = test::randn({experts, width}, 2).to(at::kBFloat16);
  const auto bias = GENERATE(false, true) ? std::optional(test::randn({experts}, 3).to(at::kFloat)) : std::nullopt;
  const ops::RouterOptions options{.num_experts_per_tok = top_k};
  const auto out = ops::router(x, weight, bias, options);
  const auto logits = at::mm(x.to(at::kFloat), weight.to(at::kFloat).t());
  REQUIRE(at::allclose(out.logits_TE, logits, 1e-5, 1e-5));
  const auto expected = ops::router_scores(out.logits_TE, bias, options);
  REQUIRE(at::equal(out.gates_TK, expected.gates_TK));
  REQUIRE(at::equal(out.ids_TK, expected.ids_TK));
  REQUIRE(at::equal(out.counts_E, expected.counts_E));
  REQUIRE(at::equal(out.prob_sum_E, expected.prob_sum_E));
  REQUIRE(at::equal(out.lse_sq_sum, expected.lse_sq_sum));
  const bool kernel = tokens > 0 && tokens <= 8 && width % 8 == 0;
  REQUIRE(ops::cuda::router(x, weight, bias, options).has_value() == kernel);
  REQUIRE(out.routing.has_value() == (kernel && tokens * top_k <= 128));
  if (!out.routing) return;
  const auto routing = ops::make_routing(out.ids_TK, experts);
  REQUIRE(out.routing->num_tokens == tokens);
  REQUIRE(out.routing->top_k == top_k);
  REQUIRE(out.routing->num_experts == experts);
  REQUIRE(at::equal(out.routing->sorted_R, routing.sorted_R));
  REQUIRE(at::equal(out.routing->tokens_R, routing.tokens_R));
  REQUIRE(at::equal(out.routing->inverse_R, routing.inverse_R));
  REQUIRE(at::equal(out.routing->offsets_E1, routing.offsets_E1));
  REQUIRE(at::equal(out.routing->tiles_E3, routing.tiles_E3));
}

}  // namespace scatterlm

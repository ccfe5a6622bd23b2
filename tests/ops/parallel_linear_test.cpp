#include "lib/ops/parallel_linear.h"

#include "lib/ops/device.h"
#include "tests/ops/parallel_linear_forms.h"

namespace scatterlm {
namespace {

using ops::RowOrder;
using test::ExpertCase;
using test::Tensors;
using namespace test::parallel_linear;

}  // namespace

TEST_CASE("parallel_linear: values and gradients in every row order", "[parallel_linear]") {
  const auto form = GENERATE(from_range(all_forms()));
  const auto c = GENERATE(from_range(test::small_expert_cases()));
  INFO(form.name << ", " << c.name);
  test::require_correct(op_for(c, form), reference_for(c, form), make_inputs(c, form), {2});
}

TEST_CASE("parallel_linear: larger sizes in fp32 and bfloat16", "[parallel_linear]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const auto form = GENERATE(from_range(all_forms()));
  const auto c = test::large_expert_cases()[0];
  INFO(form.name);
  test::require_low_precision(op_for(c, form), reference_for(c, form), make_inputs(c, form), {.dtype = dtype, .wide = {2}});
}

TEST_CASE("parallel_linear: no tokens", "[parallel_linear]") {
  const auto form = GENERATE(from_range(all_forms()));
  const ExpertCase c{.name = "", .tokens = 0, .top_k = 2, .experts = 3, .model = 4, .width = 5};
  const auto result = test::run(op_for(c, form), make_inputs(c, form));
  REQUIRE(result.value.sizes() == at::IntArrayRef({0, 5}));
  REQUIRE(test::max_abs(result.grads[1]) == 0);
}

TEST_CASE("parallel_linear: a second backward through the same graph repeats the first", "[parallel_linear]") {
  const auto c = test::small_expert_cases()[0];
  const auto form = all_forms().back();
  Tensors leaves;
  for (const auto& x : make_inputs(c, form)) leaves.push_back(x.requires_grad_());
  const auto loss = op_for(c, form)(leaves).square().sum();
  const auto first = torch::autograd::grad({loss}, leaves, {}, /*retain_graph=*/true),
             second = torch::autograd::grad({loss}, leaves);
  for (size_t i = 0; i < leaves.size(); ++i) REQUIRE(at::equal(first[i], second[i]));
}

TEST_CASE("parallel_linear: errors", "[parallel_linear]") {
  const auto c = test::small_expert_cases()[0];  // T 7, K 2, E 5, N_in 3, N_out 5
  const auto routing = ops::make_routing(c.ids(), c.experts);
  const auto weight = at::ones({5, 5, 3}, at::kDouble);
  const auto call = [&](at::IntArrayRef x, const at::Tensor& w, RowOrder in, RowOrder out,
                        const std::optional<at::Tensor>& gates = {}) {
    return ops::parallel_linear(at::ones(x, at::kDouble), w, routing, in, out, gates);
  };
  using enum RowOrder;
  REQUIRE_THROWS_WITH(call({8, 3}, weight, kToken, kToken),
                      ContainsSubstring("[parallel_linear] x must be [T=7 or R=14, N_in], got [8, 3]"));
  REQUIRE_THROWS_WITH(call({7, 3}, weight, kExpert, kToken), ContainsSubstring("x must be [R=14, N_in], got [7, 3]"));
  REQUIRE_THROWS_WITH(call({7, 4}, weight, kToken, kToken),
                      ContainsSubstring("weight must be [E=5, N_out, N_in=4], got [5, 5, 3]"));
  REQUIRE_THROWS_WITH(call({7, 3}, weight.to(at::kFloat), kToken, kToken), ContainsSubstring("weight must be Double as x"));
  REQUIRE_THROWS_WITH(call({7, 3}, weight.to(at::kMeta), kToken, kToken),
                      ContainsSubstring("[parallel_linear] all inputs must be on cpu, got weight on meta"));
  REQUIRE_THROWS_WITH(call({7, 3}, weight, kToken, kToken, c.gates().to(at::kMeta)),
                      ContainsSubstring("must be on cpu, got gates on meta"));
  REQUIRE_THROWS_WITH(call({7, 3}, weight, kToken, kExpert, c.gates()),
                      ContainsSubstring("gates need a result in token order"));
  REQUIRE_THROWS_WITH(call({7, 3}, weight, kToken, kToken, c.gates().slice(0, 1)),
                      ContainsSubstring("gates must be [T=7, K=2], got [6, 2]"));
  auto rounded = routing;
  rounded.token_offsets_T1 = at::arange(8, at::kInt) * 2;
  REQUIRE_THROWS_WITH(ops::parallel_linear(at::ones({7, 3}, at::kDouble), weight, rounded, kToken, kToken, c.gates()),
                      ContainsSubstring("[parallel_linear] takes no routing of token rounding"));
}

TEST_CASE("parallel_linear: on a GPU", "[parallel_linear][.gpu]") {
  ops::assume_compute_capability(GENERATE(80, 0));  // the portable kernels, then the GPU's own
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const auto form = GENERATE(from_range(all_forms()));
  const auto c = GENERATE(from_range(test::large_expert_cases()));
  INFO(form.name << ", " << c.name);
  test::require_low_precision(op_for(c, form, at::kCUDA), reference_for(c, form), make_inputs(c, form),
                              {.dtype = dtype, .wide = {2}, .device = at::kCUDA});
}

}  // namespace scatterlm

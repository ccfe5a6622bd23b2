#include "lib/ops/moe_mlp.h"

#include "lib/ops/activation.h"
#include "lib/ops/device.h"
#include "tests/ops/moe_mlp_cases.h"

namespace scatterlm {
namespace {

using test::ExpertCase;
using test::Tensors;
using namespace test::moe_mlp;

/// The dense MLP of the weights of one expert.
at::Tensor dense(const at::Tensor& x, const at::Tensor& w1, const at::Tensor& w2, Activation kind) {
  return at::mm(ops::activation(at::mm(x, w1.t()), kind), w2.t());
}

}  // namespace

TEST_CASE("moe_mlp: values and gradients", "[moe_mlp]") {
  const auto kind = GENERATE(Activation::kSwiglu, Activation::kGelu);
  const auto c = GENERATE(from_range(test::small_expert_cases()));
  INFO(c.name);
  test::require_correct(op_for(c, kind), reference_for(c, kind), make_inputs(c, kind), {3});
}

TEST_CASE("moe_mlp: biases, values and gradients", "[moe_mlp]") {
  const auto kind = GENERATE(Activation::kSwiglu, Activation::kGelu);
  const auto c = GENERATE(from_range(test::small_expert_cases()));
  INFO(c.name);
  // dgates is a sum of two dot products, <dA', A> and <dO, b2>, which may cancel: an ulp more than without biases.
  test::require_correct(op_for(c, kind), reference_for(c, kind), make_biased_inputs(c, kind), {3}, /*ulps=*/2);
}

TEST_CASE("moe_mlp: one bias without the other", "[moe_mlp]") {
  const bool up = GENERATE(false, true);
  const auto c = test::small_expert_cases()[0];
  const auto kind = Activation::kSwiglu;
  auto inputs = make_biased_inputs(c, kind);
  inputs.erase(inputs.begin() + (up ? 5 : 4));
  const auto bias = [=](const Tensors& x) { return up ? ops::MoeMlpBias{x[4], {}} : ops::MoeMlpBias{{}, x[4]}; };
  const auto routing = ops::make_routing(c.ids(), c.experts);
  test::require_equals_reference(
      [=](const Tensors& x) { return ops::moe_mlp(x[0], x[1], x[2], x[3], routing, kind, bias(x)); },
      [=](const Tensors& x) { return reference::moe_mlp(x[0], x[1], x[2], x[3], c.ids(), kind, bias(x)); }, inputs);
}

TEST_CASE("moe_mlp: every activation", "[moe_mlp]") {
  const auto kind = GENERATE(Activation::kGeglu, Activation::kReglu, Activation::kRelu2);
  const auto c = test::small_expert_cases()[0];
  test::require_equals_reference(op_for(c, kind), reference_for(c, kind), make_inputs(c, kind));
}

TEST_CASE("moe_mlp: larger sizes in fp32 and bfloat16", "[moe_mlp]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const auto c = GENERATE(from_range(test::large_expert_cases()));
  INFO(c.name);
  const auto inputs = GENERATE(false, true) ? make_biased_inputs : make_inputs;
  test::require_low_precision(op_for(c, Activation::kSwiglu), reference_for(c, Activation::kSwiglu),
                              inputs(c, Activation::kSwiglu), {.dtype = dtype, .wide = {3}});
}

TEST_CASE("moe_mlp: one expert with gate 1 has the bits of the dense MLP", "[moe_mlp]") {
  const ExpertCase c{.name = "", .tokens = 33, .top_k = 1, .experts = 1, .model = 24, .width = 40};
  auto inputs = make_inputs(c, Activation::kSwiglu);
  for (auto& x : inputs) x = x.to(at::kFloat);
  inputs[3] = at::ones({33, 1});
  const auto moe = test::run(op_for(c, Activation::kSwiglu), inputs);
  const auto mlp = test::run([](const Tensors& x) { return dense(x[0], x[1][0], x[2][0], Activation::kSwiglu); },
                             {inputs[0], inputs[1], inputs[2]});
  REQUIRE(at::equal(moe.value, mlp.value));
  for (size_t i = 0; i < 3; ++i) REQUIRE(at::equal(moe.grads[i], mlp.grads[i]));
}

TEST_CASE("moe_mlp: with K = E it is the weighted dense sum", "[moe_mlp]") {
  const ExpertCase c{.name = "", .tokens = 9, .top_k = 4, .experts = 4, .model = 6, .width = 5};
  const auto x = make_inputs(c, Activation::kSwiglu);
  auto sum = at::zeros_like(x[0]);
  for (int64_t j = 0; j < 4; ++j)
    for (int64_t t = 0; t < 9; ++t) {
      const int64_t e = c.ids()[t][j].item<int64_t>();
      sum[t] += x[3][t][j] * dense(x[0].slice(0, t, t + 1), x[1][e], x[2][e], Activation::kSwiglu)[0];
    }
  REQUIRE(test::max_abs(op_for(c, Activation::kSwiglu)(x) - sum) < 1e-12);
}

TEST_CASE("moe_mlp: no tokens", "[moe_mlp]") {
  const ExpertCase c{.name = "", .tokens = 0, .top_k = 2, .experts = 3, .model = 4, .width = 5};
  const auto result = test::run(op_for(c, Activation::kSwiglu), make_inputs(c, Activation::kSwiglu));
  REQUIRE(result.value.sizes() == at::IntArrayRef({0, 4}));
  REQUIRE(test::max_abs(result.grads[1]) == 0);
  REQUIRE(test::max_abs(result.grads[2]) == 0);
}

TEST_CASE("moe_mlp: a second backward through the same graph repeats the first", "[moe_mlp]") {
  const auto c = test::small_expert_cases()[0];
  Tensors leaves;
  for (const auto& x : make_inputs(c, Activation::kSwiglu)) leaves.push_back(x.requires_grad_());
  const auto loss = op_for(c, Activation::kSwiglu)(leaves).square().sum();
  const auto first = torch::autograd::grad({loss}, leaves, {}, /*retain_graph=*/true),
             second = torch::autograd::grad({loss}, leaves);
  for (size_t i = 0; i < leaves.size(); ++i) REQUIRE(at::equal(first[i], second[i]));
}

TEST_CASE("moe_mlp: only the wanted gradients", "[moe_mlp]") {
  const auto c = test::small_expert_cases()[0];
  const auto x = make_inputs(c, Activation::kSwiglu);
  const auto all = test::run(op_for(c, Activation::kSwiglu), x);
  const auto frozen = test::run(
      [&](const Tensors& in) {
        return op_for(c, Activation::kSwiglu)({in[0], x[1], x[2], x[3]});
      },
      {x[0]});
  REQUIRE(at::equal(frozen.grads[0], all.grads[0]));
}

TEST_CASE("moe_mlp: errors", "[moe_mlp]") {
  const auto c = test::small_expert_cases()[0];
  const auto kind = Activation::kSwiglu;
  const auto routing = ops::make_routing(c.ids(), c.experts);
  const auto x = make_inputs(c, kind);
  REQUIRE_THROWS_WITH(ops::moe_mlp(x[0].slice(0, 1), x[1], x[2], x[3], routing, kind),
                      ContainsSubstring("[moe_mlp] x must be [T=7, D], got [6, 3]"));
  REQUIRE_THROWS_WITH(ops::moe_mlp(x[0], x[1].slice(1, 1), x[2], x[3], routing, kind),
                      ContainsSubstring("[moe_mlp] w1 must be [E=5, 2F=10, D=3], got [5, 9, 3]"));
  REQUIRE_THROWS_WITH(ops::moe_mlp(x[0], x[1], x[2].slice(0, 1), x[3], routing, kind),
                      ContainsSubstring("w2 must be [E=5, D=3, F], got [4, 3, 5]"));
  REQUIRE_THROWS_WITH(ops::moe_mlp(x[0], x[1], x[2], x[3].slice(1, 1), routing, kind),
                      ContainsSubstring("gates must be [T=7, K=2], got [7, 1]"));
  REQUIRE_THROWS_WITH(ops::moe_mlp(x[0], x[1], x[2], x[3].to(at::kFloat), routing, kind),
                      ContainsSubstring("gates must be float32 (float64 where x is)"));
  REQUIRE_THROWS_WITH(ops::moe_mlp(x[0], x[1].to(at::kFloat), x[2], x[3], routing, kind),
                      ContainsSubstring("weights must be Double as x"));
  REQUIRE_THROWS_WITH(ops::moe_mlp(x[0], x[1], x[2].to(at::kMeta), x[3], routing, kind),
                      ContainsSubstring("[moe_mlp] all inputs must be on cpu, got w2 on meta"));
  auto elsewhere = routing;
  elsewhere.sorted_R = routing.sorted_R.to(at::kMeta);
  REQUIRE_THROWS_WITH(ops::moe_mlp(x[0], x[1], x[2], x[3], elsewhere, kind), ContainsSubstring("got routing on meta"));
  const auto with = [&](const ops::MoeMlpBias& bias) { return ops::moe_mlp(x[0], x[1], x[2], x[3], routing, kind, bias); };
  REQUIRE_THROWS_WITH(with({{}, at::zeros({5, 3}, at::kMeta)}), ContainsSubstring("must be on cpu, got b2 on meta"));
  REQUIRE_THROWS_WITH(with({at::zeros({5, 5}, at::kDouble), {}}),
                      ContainsSubstring("[moe_mlp] b1 must be [E=5, 2F=10], got [5, 5]"));
  REQUIRE_THROWS_WITH(with({{}, at::zeros({5, 3})}),
                      ContainsSubstring("[moe_mlp] b2 must be Double as the weights, got Float"));
}

TEST_CASE("moe_mlp: on a GPU", "[moe_mlp][.gpu]") {
  ops::assume_compute_capability(GENERATE(80, 0));  // the portable kernels, then the GPU's own
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const auto c = GENERATE(from_range(test::large_expert_cases()));
  INFO(c.name);
  const auto kind = Activation::kSwiglu;
  const auto inputs = GENERATE(false, true) ? make_biased_inputs : make_inputs;
  test::require_low_precision(op_for(c, kind, at::kCUDA), reference_for(c, kind), inputs(c, kind),
                              {.dtype = dtype, .wide = {3}, .device = at::kCUDA});
}

}  // namespace scatterlm

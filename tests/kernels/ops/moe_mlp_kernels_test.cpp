// The MoE MLP as its op calls the kernels, on CPU tensors: kernels compiled for tests/kernels/emulated.
#include "lib/ops/moe_mlp.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>

#include "lib/ops/device.h"
#include "tests/catch.h"
#include "tests/ops/moe_mlp_cases.h"

namespace scatterlm {
namespace {

using test::ExpertCase;
using namespace test::moe_mlp;

std::vector<ExpertCase> cases() {
  return {{.name = "tile edges", .tokens = 129, .top_k = 2, .experts = 5, .model = 72, .width = 136},
          {.name = "idle experts",
           .tokens = 70,
           .top_k = 2,
           .experts = 8,
           .model = 264,
           .width = 40,
           .load = ExpertCase::kIdleExperts},
          {.name = "every expert", .tokens = 5, .top_k = 3, .experts = 3, .model = 32, .width = 40},
          {.name = "one takes all",
           .tokens = 300,
           .top_k = 1,
           .experts = 4,
           .model = 64,
           .width = 264,
           .load = ExpertCase::kOneTakesAll},
          {.name = "one token", .tokens = 1, .top_k = 2, .experts = 4, .model = 40, .width = 32}};
}

struct CountCalls : torch::autograd::PostAccumulateGradHook {
  explicit CountCalls(int& calls) : calls(calls) {}
  void operator()(const at::Tensor&) override { ++calls; }
  int& calls;
};

}  // namespace

TEST_CASE("moe_mlp on kernels: values and gradients within twice the error of plain LibTorch", "[moe_mlp]") {
  ops::assume_compute_capability(GENERATE(80, 90));
  const auto c = GENERATE(from_range(cases()));
  const bool biased = GENERATE(false, true);
  INFO(c.name << ", biased " << biased);
  const auto inputs = biased ? make_biased_inputs : make_inputs;
  test::require_low_precision(op_for(c, Activation::kSwiglu), reference_for(c, Activation::kSwiglu),
                              inputs(c, Activation::kSwiglu), {.dtype = at::kBFloat16, .wide = {3}});
}

TEST_CASE("moe_mlp on kernels: every activation", "[moe_mlp]") {
  ops::assume_compute_capability(GENERATE(80, 90));
  const auto kind = GENERATE(Activation::kGeglu, Activation::kReglu, Activation::kRelu2, Activation::kGelu);
  const auto c = cases()[0];
  test::require_low_precision(op_for(c, kind), reference_for(c, kind), make_biased_inputs(c, kind),
                              {.dtype = at::kBFloat16, .wide = {3}});
}

TEST_CASE("moe_mlp on kernels: x and gates that are not contiguous have the same bits", "[moe_mlp]") {
  const auto c = cases()[2];
  const auto op = op_for(c, Activation::kSwiglu);
  auto inputs = make_inputs(c, Activation::kSwiglu);
  for (int i = 0; i < 3; ++i) inputs[i] = inputs[i].to(at::kBFloat16);
  inputs[3] = inputs[3].to(at::kFloat);
  auto strided = inputs;
  for (const int i : {0, 3}) strided[i] = inputs[i].t().contiguous();
  const auto expected = test::run(op, inputs), actual = test::run(
                                                   [&](const test::Tensors&x) {
                                                     return op({x[0].t(), x[1], x[2], x[3].t()});
                                                   },
                                                   strided);
  REQUIRE(at::equal(actual.value, expected.value));
  for (const int i : {0, 3}) REQUIRE(at::equal(actual.grads[i].t(), expected.grads[i]));
  for (const int i : {1, 2}) REQUIRE(at::equal(actual.grads[i], expected.grads[i]));
}

TEST_CASE("moe_mlp on kernels: gradients are added straight into fp32 buffers", "[moe_mlp]") {
  ops::assume_compute_capability(GENERATE(80, 90));
  const auto c = cases()[0];
  auto inputs = make_biased_inputs(c, Activation::kSwiglu);
  for (auto& x : inputs) x = x.to(at::kBFloat16);
  inputs[3] = c.gates().to(at::kFloat);
  int calls = 0;
  const auto parameters = {1, 2, 4, 5};
  for (const int i : parameters) {
    inputs[i] = inputs[i].detach().requires_grad_();
    inputs[i].set_grad_dtype(std::nullopt);
    inputs[i].mutable_grad() = at::ones(inputs[i].sizes(), at::kFloat);
    torch::autograd::impl::set_post_acc_grad_hooks(inputs[i], std::make_unique<CountCalls>(calls));
  }
  const auto* data = inputs[1].grad().const_data_ptr();
  const auto out = op_for(c, Activation::kSwiglu)(inputs);
  out.backward(at::ones_like(out));
  REQUIRE(calls == 4);
  REQUIRE(inputs[1].grad().const_data_ptr() == data);

  auto leaves = inputs;
  for (const int i : parameters)
    leaves[i] = inputs[i].detach().clone().requires_grad_();  // without a gradient: bf16 comes back
  const auto again = op_for(c, Activation::kSwiglu)(leaves);
  const auto grads = torch::autograd::grad({again}, {leaves[1], leaves[2], leaves[4], leaves[5]}, {at::ones_like(again)});
  auto grad = grads.begin();
  for (const int i : parameters) {
    const auto sum = inputs[i].grad() - 1, rounded = grad->to(at::kFloat);
    REQUIRE(grad++->scalar_type() == at::kBFloat16);
    REQUIRE((sum - rounded).norm().item<double>() < 2.5e-3 * rounded.norm().item<double>());
  }
}

TEST_CASE("moe_mlp on kernels: a second backward is refused", "[moe_mlp]") {
  const auto c = cases()[2];
  auto inputs = make_inputs(c, Activation::kSwiglu);
  for (int i = 0; i < 3; ++i) inputs[i] = inputs[i].to(at::kBFloat16);
  inputs[0].requires_grad_();
  inputs[3] = inputs[3].to(at::kFloat);
  const auto out = op_for(c, Activation::kSwiglu)(inputs);
  out.backward(at::ones_like(out), /*retain_graph=*/true);
  REQUIRE_THROWS_WITH(out.backward(at::ones_like(out)),
                      ContainsSubstring("[moe_mlp] backward runs once: it wrote the gradient over the pre-activation"));
}

}  // namespace scatterlm

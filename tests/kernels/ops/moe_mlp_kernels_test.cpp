// The MoE MLP as its op calls the kernels, on CPU tensors: kernels compiled for tests/kernels/emulated.
#include "lib/ops/moe_mlp.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/function_hook.h>

#include "lib/ops/device.h"
#include "lib/ops/gradient_target.h"
#include "tests/catch.h"
#include "tests/ops/moe_mlp_cases.h"
#include "tests/ops/poisoned_memory.h"

namespace scatterlm {
namespace {

using test::ExpertCase;
using namespace test::moe_mlp;

std::vector<ExpertCase> cases() {
  return {{.name = "tile edges", .tokens = 129, .top_k = 2, .experts = 5, .model = 72, .width = 136},
          {.name = "a row below a tile", .tokens = 127, .top_k = 1, .experts = 2, .model = 64, .width = 40},
          {.name = "idle experts",
           .tokens = 70,
           .top_k = 2,
           .experts = 8,
           .model = 264,
           .width = 40,
           .load = ExpertCase::kIdleExperts},
          {.name = "every expert", .tokens = 5, .top_k = 3, .experts = 3, .model = 8, .width = 8},
          {.name = "one takes all",
           .tokens = 300,
           .top_k = 1,
           .experts = 4,
           .model = 64,
           .width = 264,
           .load = ExpertCase::kOneTakesAll},
          {.name = "one token", .tokens = 1, .top_k = 2, .experts = 4, .model = 16, .width = 24}};
}

/// What kernels take: bf16, and gates in fp32.
test::Tensors inputs_for_kernels(const ExpertCase& c) {
  auto inputs = make_inputs(c, Activation::kSwiglu);
  for (int i = 0; i < 3; ++i) inputs[i] = inputs[i].to(at::kBFloat16);
  inputs[3] = inputs[3].to(at::kFloat);
  return inputs;
}

/// Counts what tensors take.
struct MemoryOfTensors : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override { peak = std::max(peak, now += bytes); }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t now = 0, peak = 0;
};

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
  const test::PoisonedMemory poisoned;
  test::require_low_precision(op_for(c, Activation::kSwiglu), reference_for(c, Activation::kSwiglu),
                              inputs(c, Activation::kSwiglu), {.dtype = at::kBFloat16, .wide = {3}});
}

TEST_CASE("moe_mlp on kernels: no tokens", "[moe_mlp]") {
  ops::assume_compute_capability(GENERATE(80, 90));
  const ExpertCase c{.name = "", .tokens = 0, .top_k = 2, .experts = 3, .model = 40, .width = 16};
  auto inputs = make_biased_inputs(c, Activation::kSwiglu);
  for (auto& x : inputs) x = x.to(at::kBFloat16);
  inputs[3] = c.gates().to(at::kFloat);
  const test::PoisonedMemory poisoned;
  const auto result = test::run(op_for(c, Activation::kSwiglu), inputs);
  REQUIRE(result.value.sizes() == at::IntArrayRef({0, 40}));
  for (const int i : {1, 2, 4, 5}) REQUIRE(test::max_abs(result.grads[i]) == 0);
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
  auto inputs = inputs_for_kernels(c);
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

TEST_CASE("moe_mlp on kernels: gradients are stored in the parameters' buffers, or added to them", "[moe_mlp]") {
  ops::assume_compute_capability(GENERATE(80, 90));
  const bool unwritten = GENERATE(false, true);
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const auto c = cases()[0];
  auto inputs = make_biased_inputs(c, Activation::kSwiglu);
  for (auto& x : inputs) x = x.to(at::kBFloat16);
  inputs[3] = c.gates().to(at::kFloat);
  int calls = 0;
  const auto parameters = {1, 2, 4, 5};
  for (const int i : parameters) {
    inputs[i] = inputs[i].detach().requires_grad_();
    inputs[i].set_grad_dtype(std::nullopt);
    inputs[i].mutable_grad() = at::full(inputs[i].sizes(), unwritten ? NAN : 1, dtype);
    if (unwritten) ops::mark_unwritten(inputs[i].grad());
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
    const auto expected = grad->to(at::kFloat) + (unwritten ? 0 : 1);
    REQUIRE(grad++->scalar_type() == at::kBFloat16);
    REQUIRE(inputs[i].grad().scalar_type() == dtype);
    REQUIRE((inputs[i].grad() - expected).norm().item<double>() < 2.5e-3 * expected.norm().item<double>());
  }
}

TEST_CASE("moe_mlp on kernels: a frozen bias keeps its gradient, the other gets its own", "[moe_mlp]") {
  const bool freeze_b1 = GENERATE(false, true), both = GENERATE(false, true);
  const auto c = cases()[2];
  auto inputs = make_biased_inputs(c, Activation::kSwiglu);
  for (auto& x : inputs) x = x.to(at::kBFloat16);
  inputs[3] = c.gates().to(at::kFloat);
  auto &frozen = inputs[freeze_b1 ? 4 : 5], &trained = inputs[freeze_b1 ? 5 : 4];
  for (auto* bias : {&frozen, &trained}) {
    bias->set_grad_dtype(std::nullopt);
    bias->mutable_grad() = at::ones(bias->sizes(), at::kFloat);
  }
  trained.requires_grad_();
  std::optional<at::Tensor> b1 = inputs[4], b2 = inputs[5];
  if (!both) (freeze_b1 ? b1 : b2) = std::nullopt;
  const auto routing = ops::make_routing(c.ids(), c.experts);
  const auto out = ops::moe_mlp(inputs[0], inputs[1], inputs[2], inputs[3], routing, Activation::kSwiglu, {b1, b2});
  out.backward(at::ones_like(out));
  REQUIRE(at::equal(frozen.grad(), at::ones_like(frozen.grad())));
  REQUIRE_FALSE(at::equal(trained.grad(), at::ones_like(trained.grad())));
}

TEST_CASE("moe_mlp on kernels: without gradients H goes before the rows of the down projection come", "[moe_mlp]") {
  const ExpertCase c{.name = "", .tokens = 40, .top_k = 2, .experts = 3, .model = 128, .width = 24};
  auto inputs = inputs_for_kernels(c);
  const auto op = op_for(c, Activation::kSwiglu);
  const auto peak = [&] {
    const auto memory = std::make_shared<MemoryOfTensors>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, memory);
    op(inputs);
    return memory->peak;
  };
  constexpr int64_t kBytesOfH = 40 * 2 * 2 * 24 * 2;
  const int64_t inference = peak();
  inputs[1].requires_grad_();
  REQUIRE(peak() == inference + kBytesOfH);
  const at::NoGradGuard no_grad;
  REQUIRE(peak() == inference);
}

TEST_CASE("moe_mlp on kernels: a second backward is refused", "[moe_mlp]") {
  const auto c = cases()[2];
  auto inputs = inputs_for_kernels(c);
  inputs[0].requires_grad_();
  const auto out = op_for(c, Activation::kSwiglu)(inputs);
  out.backward(at::ones_like(out), /*retain_graph=*/true);
  REQUIRE_THROWS_WITH(out.backward(at::ones_like(out)),
                      ContainsSubstring("[moe_mlp] backward runs once: it wrote the gradient over the pre-activation"));
}

TEST_CASE("moe_mlp on kernels: a second derivative is refused", "[moe_mlp]") {
  const auto c = cases()[2];
  auto inputs = inputs_for_kernels(c);
  inputs[0].requires_grad_();
  const auto out = op_for(c, Activation::kSwiglu)(inputs);
  REQUIRE_THROWS_WITH(out.backward(at::ones_like(out), /*retain_graph=*/true, /*create_graph=*/true),
                      ContainsSubstring("[moe_mlp] has no second derivative on kernels"));
}

TEST_CASE("moe_mlp on kernels: a gradient has the same bits whatever others are wanted", "[moe_mlp]") {
  const auto c = cases()[2];
  const bool biased = GENERATE(false, true);
  auto inputs = (biased ? make_biased_inputs : make_inputs)(c, Activation::kSwiglu);
  for (auto& x : inputs) x = x.to(at::kBFloat16);
  inputs[3] = c.gates().to(at::kFloat);
  const auto gradients = [&](size_t first, size_t end) {
    auto x = inputs;
    const test::Tensors wanted(x.begin() + first, x.begin() + end);
    for (auto leaf : wanted) leaf.requires_grad_();
    const auto out = op_for(c, Activation::kSwiglu)(x);
    const auto grads = torch::autograd::grad({out}, wanted, {at::ones_like(out)});
    for (auto leaf : wanted) leaf.requires_grad_(false);
    return grads;
  };
  const auto all = gradients(0, inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    INFO("input " << i);
    REQUIRE(at::equal(gradients(i, i + 1)[0], all[i]));
  }
}

TEST_CASE("moe_mlp on kernels: the graph lets go of its inputs after backward, and refuses those written over", "[moe_mlp]") {
  const auto c = cases()[2];
  auto inputs = inputs_for_kernels(c);
  inputs[1].requires_grad_();
  const auto& x = inputs[0];
  const auto holders = x.use_count();
  const auto op = op_for(c, Activation::kSwiglu);
  const auto out = op(inputs);
  REQUIRE(x.use_count() == holders + 1);
  out.backward(at::ones_like(out));
  REQUIRE(x.use_count() == holders);

  const auto again = op(inputs);
  x.mul_(2);
  REQUIRE_THROWS_WITH(again.backward(at::ones_like(again)), ContainsSubstring("modified by an inplace operation"));
}

}  // namespace scatterlm

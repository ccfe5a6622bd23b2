#include "lib/bench/plain.h"

#include <ATen/ATen.h>

#include "lib/bench/bench.h"
#include "lib/bench/kernels_alone.h"
#include "lib/ops/moe_mlp.h"
#include "tests/ops/check_op.h"
#include "tests/ops/reference.h"

namespace scatterlm::bench {
namespace {

const MoeShape kPlainShape{.tokens = 21, .model = 16, .width = 24, .experts = 6, .top_k = 3};

MoeInputs doubles(RoutingPattern pattern) {
  auto in = make_inputs(kPlainShape, pattern, at::kCPU);
  for (auto* x : {&in.x_TD, &in.w1, &in.w2, &in.gates_TK, &in.dout_TD}) *x = x->to(at::kDouble);
  return in;
}

}  // namespace

TEST_CASE("plain: the MLP and its gradients are those of autograd through the formula", "[plain]") {
  const auto in = doubles(GENERATE(RoutingPattern::kRandom, RoutingPattern::kOne));
  const auto routing = ops::ref::make_routing(in.ids_TK, kPlainShape.experts);
  const auto result = plain::forward(in, routing);
  const auto grads = plain::backward(in, routing, result.h);

  test::Tensors leaves;
  for (const auto& x : {in.x_TD, in.w1, in.w2, in.gates_TK}) leaves.push_back(x.detach().clone().requires_grad_());
  const auto out = reference::moe_mlp(leaves[0], leaves[1], leaves[2], leaves[3], in.ids_TK, Activation::kSwiglu);
  const auto expected = torch::autograd::grad({out}, leaves, {in.dout_TD});
  REQUIRE(test::max_abs(result.out_TD - out) < 1e-12);
  REQUIRE(test::max_abs(grads.dx_TD - expected[0]) < 1e-12);
  REQUIRE(test::max_abs(grads.dw1 - expected[1]) < 1e-12);
  REQUIRE(test::max_abs(grads.dw2 - expected[2]) < 1e-12);
  REQUIRE(test::max_abs(grads.dgates_TK - expected[3]) < 1e-12);
}

TEST_CASE("kernels alone: each is right on a CPU, and a wrong one is refused", "[kernels]") {
  const auto pattern =
      GENERATE(RoutingPattern::kRandom, RoutingPattern::kBalanced, RoutingPattern::kSkewed, RoutingPattern::kOne);
  auto tensors = run_all_kernels(make_inputs(kPlainShape, pattern, at::kCPU));
  for (const auto kernel : kAllKernels) {
    INFO(kernel_name(kernel));
    REQUIRE(check_kernel(kernel, tensors) <= 2);
    const auto output = outputs(kernel, tensors)[0], right = output.clone();
    output.sub_(1);
    REQUIRE_THROWS_WITH(check_kernel(kernel, tensors), ContainsSubstring("is wrong"));
    output.copy_(right);
  }
}

TEST_CASE("kernels alone: rows of the evidence file", "[kernels]") {
  const Machine machine;
  const Conditions conditions{.machine = machine, .routing = RoutingPattern::kSkewed, .rounds = 2};
  const auto in = make_inputs(kPlainShape, conditions.routing, machine.device);
  const auto measured = measure_kernels("gather_sum", in, conditions);
  REQUIRE(measured.rows.size() == 2);
  std::vector<std::string> keys;
  for (const auto& [key, value] : measured.rows[0].items()) keys.push_back(key);
  REQUIRE(keys == std::vector<std::string>{"T", "D", "F", "E", "K", "dtype", "routing", "kernel", "ms", "p10_ms", "p90_ms",
                                           "gbps", "ceiling_percent", "roofline_percent", "aten_ms", "max_err_ratio"});
  REQUIRE(measured.rows[1]["kernel"] == "dx");
  REQUIRE(measured.rows[1]["routing"] == "skewed");
  REQUIRE(measure_kernels("grouped_gemm", in, conditions).rows[5]["dense_ms"].is_number());
  REQUIRE(measure_kernels("routing", in, conditions).rows[0]["max_err_ratio"] == 0);
}

}  // namespace scatterlm::bench

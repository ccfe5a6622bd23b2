// Benchmarks of ops whose result comes from kernels, on CPU tensors in bfloat16: tests/kernels/emulated. They check it.
#include <ATen/ATen.h>

#include "lib/bench/bench.h"
#include "lib/bench/norms.h"
#include "lib/ops/device.h"
#include "tests/catch.h"

namespace scatterlm::bench {
namespace {

const MoeShape kMoeShape{.tokens = 33, .model = 24, .width = 16, .experts = 3, .top_k = 2};
const MoaShape kMoaShape{.batch = 1, .sequence = 33, .model = 24, .experts = 3, .top_k = 2, .heads = 1};

void expect_accurate(const Measured& measured) {
  REQUIRE_FALSE(measured.rows.empty());
  for (const auto& row : measured.rows) REQUIRE(row["max_err_ratio"] <= 2);
}

}  // namespace

TEST_CASE("benches: ops on kernels are as accurate as plain LibTorch", "[benches]") {
  ops::assume_compute_capability(GENERATE(80, 90));
  const Machine machine;
  const Conditions conditions{.machine = machine, .routing = RoutingPattern::kSkewed, .rounds = 1};
  auto moe = make_inputs(kMoeShape, conditions.routing, at::kCPU);
  for (auto* x : {&moe.x_TD, &moe.w1, &moe.w2, &moe.dout_TD}) *x = x->to(at::kBFloat16);
  expect_accurate(measure_inference(moe, conditions));
  expect_accurate(measure_router(moe, conditions));
  expect_accurate(measure_adamw(moe, conditions));
  expect_accurate(measure_token_rounding(moe, conditions));
  auto moa = make_inputs(kMoaShape, conditions.routing, at::kCPU);
  for (auto* x : {&moa.x_TD, &moa.wq, &moa.wo, &moa.k, &moa.v, &moa.dout_TD}) *x = x->to(at::kBFloat16);
  expect_accurate(measure_moa(moa, conditions));
  expect_accurate(measure_parallel_linear(moa, conditions));
  expect_accurate(measure_rms_norm({.tokens = 33, .model = 136}, conditions));
  expect_accurate(
      measure_qk_norm_rope({.batch = 2, .sequence = 33, .query_heads = 4, .key_heads = 2, .head_dim = 48}, conditions));
}

}  // namespace scatterlm::bench

// The ops of the optimiser's step as they call kernels, on CPU tensors: compiled for tests/kernels/emulated.
#include <ATen/ATen.h>

#include "lib/ops/sum_of_squares.h"
#include "tests/catch.h"
#include "tests/ops/adamw_cases.h"

namespace scatterlm {
TEST_CASE("adamw on kernels: as at::_fused_adamw_", "[adamw]") {
  const auto state = GENERATE(at::kFloat, at::kBFloat16), grads = GENERATE(at::kFloat, at::kBFloat16);
  test::check_adamw(at::kCPU, GENERATE(1, 31, 2064), state, grads);
}

TEST_CASE("adamw: what kernels do not take is updated all the same", "[adamw]") {
  auto t = test::random_adamw(at::kCPU, 100, at::kFloat, at::kFloat, 40);
  t.params = t.weights.to(at::kDouble);
  const ops::AdamWStep step{0.01, 0.9, 0.95, 1e-8, 0.1, test::number(at::kCPU, 1), test::number(at::kCPU, 0), at::ones({})};
  REQUIRE_FALSE(ops::cuda::adamw(t, step));
  ops::adamw(t, step);
  REQUIRE(t.params.equal(t.weights.to(at::kDouble)));
  t.grads = at::ones({99});
  REQUIRE_THROWS_WITH(ops::adamw(t, step), ContainsSubstring("[adamw] weights, moments, grads and params must be contiguous "
                                                             "vectors of one length, got [100] and [99]"));
  t = test::random_adamw(at::kCPU, 8, at::kFloat, at::kFloat, 9);
  REQUIRE_THROWS_WITH(ops::adamw(t, step), ContainsSubstring("num_decayed must be in 0..8, got 9"));
  t = test::random_adamw(at::kCPU, 8, at::kFloat, at::kFloat, 8);
  t.exp_avg = t.exp_avg.to(at::kBFloat16);
  REQUIRE_THROWS_WITH(ops::adamw(t, step), ContainsSubstring("moments must be Float as the weights, got BFloat16 and Float"));
}

TEST_CASE("sum_of_squares on kernels: over several vectors, the same bits in every run", "[sum_of_squares]") {
  at::manual_seed(3);
  const std::vector<at::Tensor> parts{at::randn({4099}), at::randn({1}), at::empty({0}), at::randn({70000})};
  const auto sum = ops::sum_of_squares(parts);
  const double expected = at::cat(parts).to(at::kDouble).square().sum().item<double>();
  REQUIRE(sum.sizes() == at::IntArrayRef({1}));
  REQUIRE(std::abs(sum.item<double>() - expected) < 3e-7 * expected);
  REQUIRE(ops::cuda::sum_of_squares(parts)->equal(sum));
  REQUIRE(std::abs(ops::sum_of_squares({parts[0].to(at::kDouble)}).item<double>() -
                   parts[0].to(at::kDouble).square().sum().item<double>()) < 1e-3);
}

}  // namespace scatterlm

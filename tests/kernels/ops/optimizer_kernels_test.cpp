// The ops of the optimiser's step as they call kernels, on CPU tensors: compiled for tests/kernels/emulated.
#include <ATen/ATen.h>

#include "lib/ops/sum_of_squares.h"
#include "tests/catch.h"
#include "tests/ops/adamw_cases.h"
#include "tests/ops/muon_cases.h"

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

TEST_CASE("muon on kernels: as the plain operations", "[muon]") {
  const auto state = GENERATE(at::kFloat, at::kBFloat16), grads = GENERATE(at::kFloat, at::kBFloat16);
  test::check_muon(at::kCPU, GENERATE(1, 8, 31, 2064), state, grads);
}

TEST_CASE("muon: a step that is skipped changes nothing, whatever the gradients are, on kernels and without", "[muon]") {
  auto t = test::random_muon(at::kCPU, 100, at::kFloat, at::kFloat);
  const auto momentum = t.momentum.clone(), weights = t.weights.clone(), params = t.params.clone();
  t.grads.fill_(NAN);
  t.updates.fill_(NAN);
  const auto one = test::number(at::kCPU, 1);
  REQUIRE(ops::cuda::muon_momentum(t.of_momentum(), one * NAN, one));
  REQUIRE(ops::cuda::muon_apply(t.of_apply(), one));
  ops::ref::muon_momentum(t.of_momentum(), one * NAN, one);
  ops::ref::muon_apply(t.of_apply(), one);
  REQUIRE((t.momentum.equal(momentum) && t.weights.equal(weights) && t.params.equal(params)));
}

TEST_CASE("muon: what kernels do not take is updated all the same; lengths that differ are refused", "[muon]") {
  auto t = test::random_muon(at::kCPU, 100, at::kFloat, at::kFloat);
  t.updates = t.updates.to(at::kFloat);
  const auto one = test::number(at::kCPU, 1), zero = test::number(at::kCPU, 0);
  REQUIRE_FALSE(ops::cuda::muon_momentum(t.of_momentum(), one, zero));
  REQUIRE_FALSE(ops::cuda::muon_apply(t.of_apply(), zero));
  const auto weights = t.weights.clone();
  ops::muon_momentum(t.of_momentum(), one, zero);
  ops::muon_apply(t.of_apply(), zero);
  REQUIRE(at::allclose(t.updates, t.grads + test::kBeta * t.momentum, 1e-5, 1e-6));
  REQUIRE(at::allclose(t.weights, weights * (1 - 0.02 * 0.1) - 0.02 * t.updates, 1e-5, 1e-6));
  t.grads = at::ones({99});
  REQUIRE_THROWS_WITH(ops::muon_momentum(t.of_momentum(), one, zero),
                      ContainsSubstring("[muon] tensors must be contiguous vectors of one length, got [100] and [99]"));
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

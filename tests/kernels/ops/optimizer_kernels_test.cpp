// The ops of the optimiser's step as they call kernels, on CPU tensors: compiled for tests/kernels/emulated.
#include <ATen/ATen.h>

#include "lib/ops/adamw.h"
#include "lib/ops/sum_of_squares.h"
#include "tests/catch.h"

namespace scatterlm {
namespace {

at::Tensor number(double value) { return at::full({1}, value, at::kFloat); }

ops::AdamWTensors random_tensors(int64_t count, at::ScalarType state, at::ScalarType grads, int64_t num_decayed) {
  at::manual_seed(count);
  const auto weights = at::randn({count}).to(state);
  return {.weights = weights,
          .exp_avg = at::randn({count}).to(state),
          .exp_avg_sq = at::randn({count}).square().to(state),
          .grads = at::randn({count}).to(grads),
          .params = state == at::kFloat ? weights.to(at::kBFloat16) : weights,
          .num_decayed = num_decayed};
}

ops::AdamWTensors copy_of(const ops::AdamWTensors& t) {
  const auto weights = t.weights.clone();
  return {weights,
          t.exp_avg.clone(),
          t.exp_avg_sq.clone(),
          t.grads.clone(),
          t.params.data_ptr() == t.weights.data_ptr() ? weights : t.params.clone(),
          t.num_decayed};
}

}  // namespace

TEST_CASE("adamw on kernels: as at::_fused_adamw_", "[adamw]") {
  const auto state = GENERATE(at::kFloat, at::kBFloat16), grads = GENERATE(at::kFloat, at::kBFloat16);
  const int64_t count = GENERATE(1, 31, 2064);
  for (const int64_t num_decayed : {int64_t{0}, count / 3, count}) {
    const auto actual = random_tensors(count, state, grads, num_decayed), expected = copy_of(actual);
    const ops::AdamWStep step{.lr = 0.01,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .eps = 1e-8,
                              .weight_decay = 0.1,
                              .grad_scale = number(1.7),
                              .skip = number(0),
                              .updates = at::full({}, 3, at::kFloat)};
    const auto grads_before = actual.grads.clone();
    REQUIRE(ops::cuda::adamw(actual, step));
    REQUIRE(actual.grads.equal(grads_before));
    ops::ref::adamw(expected, step);
    // Rounding of the gradients to bf16 and of results that lie between two numbers of bf16.
    const double tolerance = state == at::kFloat ? 1e-6 : 0.01;
    const auto require_close = [&](const at::Tensor& x, const at::Tensor& y) {
      REQUIRE(at::allclose(x.to(at::kFloat), y.to(at::kFloat), tolerance, tolerance));
    };
    require_close(actual.weights, expected.weights);
    require_close(actual.exp_avg, expected.exp_avg);
    require_close(actual.exp_avg_sq, expected.exp_avg_sq);
    REQUIRE(actual.params.equal(actual.weights.to(at::kBFloat16)));
  }
}

TEST_CASE("adamw: what kernels do not take is updated all the same", "[adamw]") {
  auto t = random_tensors(100, at::kFloat, at::kFloat, 40);
  t.params = t.weights.to(at::kDouble);
  const ops::AdamWStep step{0.01, 0.9, 0.95, 1e-8, 0.1, number(1), number(0), at::ones({})};
  REQUIRE_FALSE(ops::cuda::adamw(t, step));
  ops::adamw(t, step);
  REQUIRE(t.params.equal(t.weights.to(at::kDouble)));
  t.grads = at::ones({99});
  REQUIRE_THROWS_WITH(ops::adamw(t, step), ContainsSubstring("[adamw] weights, moments, grads and params must be contiguous "
                                                             "vectors of one length, got [100] and [99]"));
  t = random_tensors(8, at::kFloat, at::kFloat, 9);
  REQUIRE_THROWS_WITH(ops::adamw(t, step), ContainsSubstring("num_decayed must be in 0..8, got 9"));
  t = random_tensors(8, at::kFloat, at::kFloat, 8);
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

// AdamW against at::_fused_adamw_: on a GPU, and on the CPU where kernels are emulated.
#pragma once
#include <ATen/ATen.h>

#include "lib/ops/adamw.h"
#include "tests/catch.h"

namespace scatterlm::test {

inline at::Tensor number(at::Device device, double value) {
  return at::full({1}, value, at::TensorOptions(device).dtype(at::kFloat));
}

inline ops::AdamWTensors random_adamw(at::Device device, int64_t count, at::ScalarType state, at::ScalarType grads,
                                      int64_t num_decayed) {
  at::manual_seed(count);
  const auto weights = at::randn({count}, device).to(state);
  return {.weights = weights,
          .exp_avg = at::randn({count}, device).to(state),
          .exp_avg_sq = at::randn({count}, device).square().to(state),
          .grads = at::randn({count}, device).to(grads),
          .params = state == at::kFloat ? weights.to(at::kBFloat16) : weights,
          .num_decayed = num_decayed};
}

inline ops::AdamWTensors copy_of(const ops::AdamWTensors& t) {
  const auto weights = t.weights.clone();
  return {weights,
          t.exp_avg.clone(),
          t.exp_avg_sq.clone(),
          t.grads.clone(),
          t.params.data_ptr() == t.weights.data_ptr() ? weights : t.params.clone(),
          t.num_decayed};
}

inline void check_adamw(at::Device device, int64_t count, at::ScalarType state, at::ScalarType grads) {
  for (const int64_t num_decayed : {int64_t{0}, count / 3, count}) {
    const auto actual = random_adamw(device, count, state, grads, num_decayed), expected = copy_of(actual);
    const ops::AdamWStep step{.lr = 0.01,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .eps = 1e-8,
                              .weight_decay = 0.1,
                              .grad_scale = number(device, 1.7),
                              .skip = number(device, 0),
                              .updates = number(device, 3).squeeze()};
    const auto grads_before = actual.grads.clone();
    REQUIRE(ops::cuda::adamw(actual, step));
    REQUIRE(actual.grads.equal(grads_before));
    ops::ref::adamw(expected, step);
    // Rounding of the gradients to bf16 and of results that lie between two numbers of bf16.
    const double tolerance = state == at::kFloat ? 3e-6 : 0.01;
    const auto require_close = [&](const at::Tensor& x, const at::Tensor& y) {
      REQUIRE(at::allclose(x.to(at::kFloat), y.to(at::kFloat), tolerance, tolerance));
    };
    require_close(actual.weights, expected.weights);
    require_close(actual.exp_avg, expected.exp_avg);
    require_close(actual.exp_avg_sq, expected.exp_avg_sq);
    REQUIRE(actual.params.equal(actual.weights.to(at::kBFloat16)));
  }
}

}  // namespace scatterlm::test

// Weight gradients of bf16 products, written in place: on a GPU, and on the CPU where kernels are emulated.
#pragma once
#include <ATen/ATen.h>

#include <functional>
#include <vector>

#include "lib/ops/gradient_target.h"
#include "lib/ops/linear.h"
#include "tests/catch.h"

namespace scatterlm::test {

using Product = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias)>;

/// Every op that is x [..., N_in] times weight^T; those beside linear() have no bias.
inline std::vector<Product> products(bool biased) {
  std::vector<Product> all = {ops::linear};
  if (biased) return all;
  const auto shaped = [](const at::Tensor& y, const at::Tensor& x) { return y.unflatten(0, x.sizes().slice(0, x.dim() - 1)); };
  all.push_back([=](const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>&) {
    return shaped(ops::linear_and_rows(x.flatten(0, -2), weight).y_TM, x);
  });
  all.push_back([=](const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>&) {
    const auto rows = x.flatten(0, -2);
    return shaped(ops::add_linear(at::zeros({rows.size(0), weight.size(0)}, rows.options()), rows, weight), x);
  });
  return all;
}

/// Stored over NaN in the first of three backward passes, added in the others, and never rounded to bf16.
inline void check_weight_gradients_in_place(const Product& product, at::Device device, bool biased, int64_t rows, int64_t n_in,
                                            int64_t n_out) {
  at::manual_seed(1);
  const auto bf16 = [&](at::IntArrayRef shape) { return at::randn(shape).to(device, at::kBFloat16); };
  const auto x = bf16({2, rows, n_in}).requires_grad_(), dy = bf16({2, rows, n_out});
  const auto weight = bf16({n_out, n_in}).requires_grad_(), bias = bf16({n_out}).requires_grad_();
  for (const auto& p : {weight, bias}) {
    p.set_grad_dtype(std::nullopt);
    p.mutable_grad() = at::full(p.sizes(), NAN, p.options().dtype(at::kFloat).requires_grad(false));
  }
  bias.grad().zero_();
  ops::mark_unwritten(weight.grad());
  const auto wide = [](const at::Tensor& t) { return t.detach().to(at::kDouble).flatten(0, -2); };
  const auto relative_error = [](const at::Tensor& actual, const at::Tensor& expected) {
    return ((actual.detach() - expected).norm() / expected.norm()).item<double>();
  };
  const auto expected = at::mm(wide(dy).t(), wide(x));
  const auto given_bias = biased ? std::optional(bias) : std::nullopt;
  for (int repeat = 1; repeat <= 3; ++repeat) {
    const auto y = product(x, weight, given_bias);
    REQUIRE(y.sizes() == dy.sizes());
    REQUIRE(relative_error(y, at::linear(x, weight, given_bias).detach().to(at::kDouble)) < 4e-3);
    y.backward(dy);
    REQUIRE(relative_error(weight.grad(), repeat * expected) < 1e-5);  // rounded to bf16 it would be 2e-3
    REQUIRE(relative_error(x.grad(), repeat * at::matmul(dy.to(at::kDouble), wide(weight))) < 8e-3);
    if (biased) REQUIRE(relative_error(bias.grad(), repeat * wide(dy).sum(0)) < 4e-3);
  }
}

}  // namespace scatterlm::test

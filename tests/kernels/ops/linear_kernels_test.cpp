// Weight gradients of bf16 products, written in place as on a GPU, on CPU tensors.
#include "lib/ops/linear.h"

#include <ATen/ATen.h>

#include "tests/catch.h"
#include "tests/ops/linear_cases.h"

namespace scatterlm {

TEST_CASE("linear on kernels: weight gradients are stored, then added, in float32", "[linear]") {
  test::check_weight_gradients_in_place(at::kCPU, GENERATE(false, true), 33, 24, 40);
}

TEST_CASE("linear on kernels: a weight without a gradient gets one of its own dtype, a frozen one none", "[linear]") {
  at::manual_seed(2);
  const auto x = at::randn({5, 8}).to(at::kBFloat16).requires_grad_();
  const auto weight = at::randn({3, 8}).to(at::kBFloat16).requires_grad_(), frozen = weight.detach().clone();
  ops::linear(x, weight).sum().backward();
  REQUIRE(weight.grad().scalar_type() == at::kBFloat16);
  REQUIRE((weight.grad() - x.detach().sum(0)).abs().max().item<double>() < 0.05);
  x.mutable_grad() = at::Tensor();
  ops::linear(x, frozen).sum().backward();
  REQUIRE_FALSE(frozen.grad().defined());
  REQUIRE((x.grad() - frozen.sum(0)).abs().max().item<double>() < 0.05);
}

}  // namespace scatterlm

// Weight gradients of bf16 products, written in place as on a GPU, on CPU tensors.
#include "lib/ops/linear.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "tests/catch.h"
#include "tests/ops/linear_cases.h"

namespace scatterlm {

TEST_CASE("linear on kernels: weight gradients are stored, then added, in float32", "[linear]") {
  const bool biased = GENERATE(false, true);
  for (const auto& product : test::products(biased))
    test::check_weight_gradients_in_place(product, at::kCPU, biased, 33, 24, 40);
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

TEST_CASE("linear on kernels: few rows without a gradient", "[linear]") {
  const int64_t rows = GENERATE(0, 1, 8, 9, 32, 33), outputs = GENERATE(24, 20), inputs = GENERATE(40, 36);  // some without
  const at::NoGradGuard no_grad;
  at::manual_seed(3);
  const auto x = at::randn({rows, 1, inputs}).to(at::kBFloat16), weight = at::randn({outputs, inputs}).to(at::kBFloat16);
  const auto bias = GENERATE(false, true) ? std::optional(at::randn({outputs}).to(at::kBFloat16)) : std::nullopt;
  const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
  const auto truth = at::linear(wide(x), wide(weight), bias ? std::optional(wide(*bias)) : std::nullopt);
  const auto y = ops::linear(x, weight, bias);
  REQUIRE(y.sizes() == truth.sizes());
  REQUIRE(y.scalar_type() == at::kBFloat16);
  const bool kernel = rows > 0 && rows <= 32 && outputs % 8 == 0 && inputs % 8 == 0;
  // Without the kernel there are two roundings: of the product, and with the bias.
  const double ulp = kernel ? 0x1p-8 : 0x1p-7;
  if (rows > 0) REQUIRE((wide(y) - truth).abs().max().item<double>() <= ulp * truth.abs().max().item<double>());
  REQUIRE(ops::cuda::linear(x.flatten(0, 1), weight, bias).has_value() == kernel);
}

}  // namespace scatterlm

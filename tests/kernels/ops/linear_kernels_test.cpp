// Weight gradients of bf16 products, written in place as on a GPU, on CPU tensors.
#include "lib/ops/linear.h"

#include <ATen/ATen.h>

#include "lib/ops/gradient_target.h"
#include "tests/catch.h"

namespace scatterlm {

TEST_CASE("linear on kernels: weight gradients are stored, then added, in float32", "[linear]") {
  const bool biased = GENERATE(false, true);
  at::manual_seed(1);
  const auto bf16 = [](at::IntArrayRef shape) { return at::randn(shape).to(at::kBFloat16); };
  const auto x = bf16({2, 33, 24}).requires_grad_(), dy = bf16({2, 33, 40});
  const auto weight = bf16({40, 24}).requires_grad_(), bias = bf16({40}).requires_grad_();
  for (const auto& p : {weight, bias}) {
    p.set_grad_dtype(std::nullopt);
    p.mutable_grad() = at::full(p.sizes(), NAN, at::kFloat);
  }
  bias.grad().zero_();
  ops::mark_unwritten(weight.grad());
  const auto wide = [](const at::Tensor& t) { return t.detach().to(at::kDouble).flatten(0, -2); };
  const auto expected = at::mm(wide(dy).t(), wide(x));
  for (int repeat = 1; repeat <= 3; ++repeat) {
    const auto y = ops::linear(x, weight, biased ? std::optional(bias) : std::nullopt);
    REQUIRE(y.equal(at::linear(x, weight, biased ? std::optional(bias) : std::nullopt)));
    y.backward(dy);
    REQUIRE((weight.grad() - repeat * expected).abs().max().item<double>() < 2e-5 * repeat);  // bf16 would be off by 0.05
    REQUIRE((x.grad() - repeat * at::matmul(dy, weight)).abs().max().item<double>() < 0.3);
    if (biased) REQUIRE((bias.grad() - repeat * wide(dy).sum(0)).abs().max().item<double>() < 0.1 * repeat);
  }
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

#include <ATen/core/grad_mode.h>

#include "lib/ops/cross_entropy.h"

#include "tests/ops/reference.h"

#include "tests/ops/check_op.h"

namespace scatterlm {
namespace {

using test::Tensors;

at::Tensor make_target(int64_t tokens, int64_t vocab) { return at::arange(tokens, at::kLong) * 7 % vocab; }

test::Op op_with(const at::Tensor& target) {
  return [=](const Tensors& x) { return ops::linear_cross_entropy(x[0], x[1], target.to(x[0].device())); };
}

test::Op reference_with(const at::Tensor& target) {
  return [=](const Tensors& x) { return reference::linear_cross_entropy(x[0], x[1], target.to(x[0].device())); };
}

}  // namespace

TEST_CASE("cross_entropy: values and gradients", "[cross_entropy]") {
  const auto tokens = GENERATE(1, 5), vocab = GENERATE(2, 17, 33), width = GENERATE(1, 6);
  const auto target = make_target(tokens, vocab);
  const Tensors inputs = {test::randn({tokens, width}, 1), test::randn({vocab, width}, 2)};
  test::require_equals_reference(op_with(target), reference_with(target), inputs);
  test::require_finite_differences(op_with(target), inputs);
  test::require_low_precision(op_with(target), reference_with(target), inputs, {.dtype = at::kFloat});
}

TEST_CASE("cross_entropy: several chunks", "[cross_entropy]") {
  const auto target = make_target(1100, 301);
  const Tensors inputs = {test::randn({1100, 8}, 3), test::randn({301, 8}, 4)};
  test::require_equals_reference(op_with(target), reference_with(target), inputs);
  test::require_low_precision(op_with(target), reference_with(target), inputs, {.dtype = at::kFloat});
}

TEST_CASE("cross_entropy: bfloat16 loses no more than rounding its gradients", "[cross_entropy]") {
  const auto target = make_target(40, 33);
  const Tensors inputs = {test::randn({40, 16}, 3), test::randn({33, 16}, 4)};
  test::require_low_precision(op_with(target), reference_with(target), inputs, {.dtype = at::kBFloat16});
  REQUIRE(op_with(target)({inputs[0].to(at::kBFloat16), inputs[1].to(at::kBFloat16)}).scalar_type() == at::kFloat);
}

TEST_CASE("cross_entropy: without gradients the same loss", "[cross_entropy]") {
  const auto target = make_target(9, 5), h = test::randn({9, 4}, 5), weight = test::randn({5, 4}, 6);
  const auto with = ops::linear_cross_entropy(h.clone().requires_grad_(), weight, target);
  at::NoGradGuard no_grad;
  const auto without = ops::linear_cross_entropy(h, weight, target);
  REQUIRE(at::equal(with.detach(), without));
  REQUIRE(!without.requires_grad());
}

TEST_CASE("cross_entropy: extreme logits and no tokens", "[cross_entropy]") {
  const auto weight = at::tensor({1e4, -1e4, 0.0}, at::kFloat).view({3, 1}), h = at::ones({2, 1});
  const auto loss = ops::linear_cross_entropy(h, weight, at::tensor({0, 1}, at::kLong));
  REQUIRE(loss.item<float>() == 2e4f);
  REQUIRE(std::isnan(ops::linear_cross_entropy(h * NAN, weight, at::tensor({0, 1}, at::kLong)).item<float>()));
  REQUIRE(ops::linear_cross_entropy(at::empty({0, 1}), weight, at::empty({0}, at::kLong)).item<float>() == 0);
}

TEST_CASE("cross_entropy: errors", "[cross_entropy]") {
  const auto h = at::ones({2, 4}), weight = at::ones({3, 4}), target = at::tensor({0, 3}, at::kLong);
  REQUIRE_THROWS_WITH(ops::linear_cross_entropy(h, weight, target),
                      ContainsSubstring("[cross_entropy] target must be in 0..V-1=2, got 3 at token 1"));
  REQUIRE_THROWS_WITH(ops::linear_cross_entropy(h, at::ones({3, 5}), target), ContainsSubstring("[2, 4] and [3, 5]"));
  REQUIRE_THROWS_WITH(ops::linear_cross_entropy(h, weight, target.to(at::kInt)),
                      ContainsSubstring("target must be int64 [T=2], got Int [2]"));
}

TEST_CASE("cross_entropy: on a GPU", "[cross_entropy][.gpu]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const int64_t vocab = GENERATE(303, 304, 16392);  // without and with the kernel
  const auto target = make_target(1100, vocab);
  test::require_low_precision(op_with(target), reference_with(target),
                              {test::randn({1100, 64}, 3), test::randn({vocab, 64}, 4)}, {.dtype = dtype, .device = at::kCUDA});
}

}  // namespace scatterlm

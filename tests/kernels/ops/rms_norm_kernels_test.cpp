// RMSNorm and the addition before it as their ops call the kernels, on CPU tensors: compiled for tests/kernels/emulated.
#include "lib/ops/rms_norm.h"

#include "tests/ops/reference.h"

#include "tests/ops/rms_norm_cases.h"

namespace scatterlm {
namespace {

using test::Tensors;

constexpr double kNormEps = 1e-5;

test::Op norm_op() {
  return [](const Tensors& x) { return ops::rms_norm(x[0], x[1], kNormEps); };
}

/// Both results of a step of the residual stream, the sum times 2 so that a gradient of the other shows.
test::Op residual_op() {
  return [](const Tensors& x) {
    const auto [sum, y] = ops::add_rms_norm(x[0], x[1], x[2], kNormEps);
    return at::stack({2 * sum, y});
  };
}
Tensors residual_inputs(int64_t rows, int64_t width) {
  return {3 * test::randn({2, rows, width}, 1), test::randn({2, rows, width}, 2), 1 + 0.1 * test::randn({width}, 3)};
}

}  // namespace

TEST_CASE("rms_norm on kernels: values and gradients", "[rms_norm]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const auto width = GENERATE(8, 33, 96, 768);  // 33: not for the kernel
  test::require_low_precision(norm_op(), [](const Tensors& x) { return reference::rms_norm(x[0], x[1], kNormEps); },
                              {3 * test::randn({5, 7, width}, 1), 1 + 0.1 * test::randn({width}, 2)}, {.dtype = dtype});
}

TEST_CASE("add_rms_norm on kernels: values and gradients", "[rms_norm]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const auto width = GENERATE(8, 33, 264);
  const auto reference = [](const Tensors& x) {
    const auto sum = x[0] + x[1];
    return at::stack({2 * sum, reference::rms_norm(sum, x[2], kNormEps)});
  };
  test::require_low_precision(residual_op(), reference, residual_inputs(17, width), {.dtype = dtype});
}

TEST_CASE("add_rms_norm on kernels: a sum without a branch has the same bits", "[rms_norm]") {
  test::require_sum_without_branch_has_the_same_bits(GENERATE(at::kFloat, at::kBFloat16), GENERATE(8, 264));
}

TEST_CASE("add_rms_norm on kernels: a result that nobody uses, and inputs that are views", "[rms_norm]") {
  Tensors in;
  for (const auto& x : residual_inputs(5, 24)) in.push_back(x.to(at::kFloat).requires_grad_());
  const auto dy = test::randn({2, 5, 24}, 4).to(at::kFloat);
  const auto grads_of = [&](const at::Tensor& result) { return torch::autograd::grad({result}, {in[0], in[1]}, {dy}); };
  const auto sum = in[0] + in[1];
  const auto only_sum = grads_of(ops::add_rms_norm(in[0], in[1], in[2], kNormEps).sum);
  REQUIRE((at::equal(only_sum[0], dy) && at::equal(only_sum[1], dy)));
  const auto only_y = grads_of(ops::add_rms_norm(in[0], in[1], in[2], kNormEps).y);
  const auto expected = torch::autograd::grad({reference::rms_norm(sum, in[2], kNormEps)}, {sum}, {dy})[0];
  for (const auto& grad : only_y) REQUIRE(test::max_abs(grad - expected) < 1e-5);
  const auto shifted = at::zeros({2, 5, 25}).slice(2, 1).copy_(in[0].detach());
  REQUIRE(at::equal(ops::add_rms_norm(shifted, in[1], in[2], kNormEps).y, ops::add_rms_norm(in[0], in[1], in[2], kNormEps).y));
}

}  // namespace scatterlm

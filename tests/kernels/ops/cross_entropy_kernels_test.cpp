// Cross-entropy as its op calls the kernel, on CPU tensors: compiled for tests/kernels/emulated.
#include "lib/ops/cross_entropy.h"

#include <ATen/core/grad_mode.h>

#include "tests/ops/reference.h"

#include "tests/ops/check_op.h"

namespace scatterlm {
namespace {

using test::Tensors;

at::Tensor make_target(int64_t tokens, int64_t vocab) { return at::arange(tokens, at::kLong) * 7 % vocab; }

}  // namespace

TEST_CASE("cross_entropy on kernels: values and gradients", "[cross_entropy]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  // One chunk of tokens and two; 33: no kernel.
  const auto [tokens, vocab] = GENERATE(table<int64_t, int64_t>({{1, 8}, {5, 264}, {5, 33}, {258, 1048}}));
  INFO("T " << tokens << ", V " << vocab);
  const auto target = make_target(tokens, vocab);
  test::require_low_precision([&](const Tensors& x) { return ops::linear_cross_entropy(x[0], x[1], target); },
                              [&](const Tensors& x) { return reference::linear_cross_entropy(x[0], x[1], target); },
                              {test::randn({tokens, 16}, 3), test::randn({vocab, 16}, 4)}, {.dtype = dtype});
}

TEST_CASE("cross_entropy on kernels: without gradients the same loss, no tokens", "[cross_entropy]") {
  const auto target = make_target(9, 16), h = test::randn({9, 4}, 5).to(at::kBFloat16);
  const auto weight = test::randn({16, 4}, 6).to(at::kBFloat16);
  const auto with = ops::linear_cross_entropy(h.clone().requires_grad_(), weight, target);
  at::NoGradGuard no_grad;
  REQUIRE(at::equal(with.detach(), ops::linear_cross_entropy(h, weight, target)));
  REQUIRE(ops::linear_cross_entropy(h.slice(0, 0, 0), weight, target.slice(0, 0, 0)).item<float>() == 0);
}

}  // namespace scatterlm

// Activations as their op calls the kernels, on CPU tensors: compiled for tests/kernels/emulated.
#include "lib/ops/activation.h"

#include "tests/ops/reference.h"

#include "tests/ops/check_op.h"

namespace scatterlm {
namespace {

using test::Tensors;

test::Op op_of(Activation kind) {
  return [=](const Tensors& x) { return ops::activation(x[0], kind); };
}
test::Op reference_of(Activation kind) {
  return [=](const Tensors& x) { return reference::activation(x[0], kind); };
}

}  // namespace

TEST_CASE("activation on kernels: values and gradients", "[activation]") {
  const auto kind =
      GENERATE(Activation::kSwiglu, Activation::kGeglu, Activation::kReglu, Activation::kRelu2, Activation::kGelu);
  const int64_t width = GENERATE(8, 264, 12);  // 12: no kernel
  const auto h = 2 * test::randn({3, 5, is_gated(kind) ? 2 * width : width}, 1);
  test::require_low_precision(op_of(kind), reference_of(kind), {h}, {.dtype = at::kBFloat16});
  test::require_low_precision(op_of(kind), reference_of(kind), {h}, {.dtype = at::kFloat});
}

TEST_CASE("activation on kernels: rows that are not contiguous or not aligned", "[activation]") {
  const auto kind = GENERATE(Activation::kSwiglu, Activation::kGelu);
  const auto h = test::randn({4, 2, 32}, 2).to(at::kBFloat16), shifted = test::randn({129}, 3).to(at::kBFloat16).slice(0, 1);
  const auto op = op_of(kind);
  REQUIRE(at::equal(op({h.transpose(0, 1)}), op({h}).transpose(0, 1)));
  REQUIRE(at::allclose(op({shifted.view({4, 32})}), op({shifted.clone().view({4, 32})}), 0x1p-7, 1e-6));
  REQUIRE(op({h.slice(0, 0, 0)}).size(0) == 0);
}

}  // namespace scatterlm

#include "lib/ops/activation.h"

#include "tests/ops/reference.h"

#include "tests/ops/check_op.h"

namespace scatterlm {
namespace {

using test::Tensors;

const auto kAllKinds = {Activation::kSwiglu, Activation::kGeglu, Activation::kReglu, Activation::kRelu2, Activation::kGelu};

}  // namespace

TEST_CASE("activation: values and gradients at odd sizes", "[activation]") {
  const auto kind = GENERATE(from_range(std::vector<Activation>(kAllKinds)));
  const auto half = GENERATE(1, 16, 31, 33);
  const auto h = 2 * test::randn({3, is_gated(kind) ? 2 * half : half}, 1);
  test::require_correct([&](const Tensors& x) { return ops::activation(x[0], kind); },
                        [&](const Tensors& x) { return reference::activation(x[0], kind); }, {h});
}

TEST_CASE("activation: large and small pre-activations", "[activation]") {
  const auto kind = GENERATE(Activation::kSwiglu, Activation::kGeglu);
  const auto gate = at::tensor({-1e4, -100.0, -87.5, -20.0, -1e-6, 0.0, 1e-6, 20.0, 88.9, 1e4}, at::kDouble);
  const auto h = at::stack({gate, at::ones_like(gate)}, 1);
  test::require_low_precision([&](const Tensors& x) { return ops::activation(x[0], kind); },
                              [&](const Tensors& x) { return reference::activation(x[0], kind); }, {h}, {.dtype = at::kFloat});
  const auto nan = ops::activation(at::full({1, 2}, NAN), kind);
  REQUIRE(std::isnan(nan.item<float>()));
}

TEST_CASE("activation: leading dimensions, non-contiguous and empty input", "[activation]") {
  const auto h = test::randn({4, 2, 6}, 2).to(at::kFloat);
  const auto expected = ops::ref::activation(h.transpose(0, 1), Activation::kSwiglu);
  REQUIRE(at::allclose(ops::activation(h.transpose(0, 1), Activation::kSwiglu), expected));
  REQUIRE(ops::activation(at::empty({0, 8}), Activation::kSwiglu).sizes() == at::IntArrayRef({0, 4}));
}

TEST_CASE("gated_activation_bwd: gradients for a gated sum from the ungated gradient", "[activation]") {
  const auto kind = GENERATE(from_range(std::vector<Activation>(kAllKinds)));
  const auto h = test::randn({5, is_gated(kind) ? 34 : 17}, 3), gates = test::randn({5}, 4), da = test::randn({5, 17}, 5);
  const auto grads =
      test::run([&](const Tensors& x) { return x[1].unsqueeze(1) * reference::activation(x[0], kind) * da; }, {h, gates});
  const auto projection = test::randn({5, 17}, 99);
  const auto actual = ops::gated_activation_bwd(da * projection, h, gates, kind);
  REQUIRE(test::max_abs(actual.dh - grads.grads[0]) < 1e-12);
  REQUIRE(test::max_abs(actual.dgates - grads.grads[1]) < 1e-12);
  REQUIRE(test::max_abs(actual.a_gated - gates.unsqueeze(1) * reference::activation(h, kind)) < 1e-12);
}

TEST_CASE("activation: odd width of a gated pre-activation", "[activation]") {
  REQUIRE_THROWS_WITH(ops::activation(at::ones({2, 5}), Activation::kSwiglu),
                      ContainsSubstring("[activation]") && ContainsSubstring("[2, 5]"));
}

TEST_CASE("activation: on a GPU", "[activation][.gpu]") {
  const auto kind = GENERATE(from_range(std::vector<Activation>(kAllKinds)));
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const int64_t half = GENERATE(31, 264);  // without and with the kernel, which bfloat16 has
  const auto h = 2 * test::randn({37, is_gated(kind) ? 2 * half : half}, 1);
  test::require_low_precision([&](const Tensors& x) { return ops::activation(x[0], kind); },
                              [&](const Tensors& x) { return reference::activation(x[0], kind); }, {h},
                              {.dtype = dtype, .device = at::kCUDA});
}

}  // namespace scatterlm

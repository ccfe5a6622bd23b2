#include "lib/ops/linear.h"

#include "lib/ops/gemm.h"

#include "tests/ops/check_op.h"
#include "tests/ops/linear_cases.h"

namespace scatterlm {

using test::Tensors;

TEST_CASE("linear: values and gradients", "[linear]") {
  const bool biased = GENERATE(false, true);
  const auto rows = GENERATE(1, 33), width = GENERATE(1, 31);
  Tensors inputs = {test::randn({2, rows, width}, 1), test::randn({5, width}, 2)};
  if (biased) inputs.push_back(test::randn({5}, 3));
  const auto bias = [&](const Tensors& x) { return biased ? std::optional(x[2]) : std::nullopt; };
  test::require_correct(
      [&](const Tensors& x) { return ops::linear(x[0], x[1], bias(x)); },
      [&](const Tensors& x) { return biased ? at::matmul(x[0], x[1].t()) + x[2] : at::matmul(x[0], x[1].t()); }, inputs);
}

TEST_CASE("linear: products large enough for the other library", "[linear]") {
  const Tensors inputs = {test::randn({130, 129}, 1), test::randn({131, 129}, 2)};
  test::require_low_precision([](const Tensors& x) { return ops::linear(x[0], x[1]); },
                              [](const Tensors& x) { return at::matmul(x[0], x[1].t()); }, inputs, {.dtype = at::kFloat});
}

TEST_CASE("linear: frozen weight, no rows, strided input", "[linear]") {
  const auto weight = test::randn({3, 4}, 1);
  const auto x = test::randn({4, 6}, 2);
  const auto dx = test::run([&](const Tensors& in) { return ops::linear(in[0].t(), weight); }, {x}).grads[0];
  REQUIRE(test::max_abs(dx - test::run([&](const Tensors& in) { return at::matmul(in[0].t(), weight.t()); }, {x}).grads[0]) <
          1e-13);
  REQUIRE(ops::linear(at::empty({2, 0, 4}, at::kDouble), weight).sizes() == at::IntArrayRef({2, 0, 3}));
}

TEST_CASE("gemm: into rows of a larger matrix, replaced and added", "[linear]") {
  const auto size = GENERATE(7, 128);
  const auto a = test::randn({size, size}, 1).to(at::kFloat), b = test::randn({size, size}, 2).to(at::kFloat);
  auto whole = at::full({3 * size, size}, NAN, at::kFloat);
  const auto rows = whole.slice(0, size, 2 * size);
  ops::gemm(rows, a.t(), b);
  const auto expected = at::mm(a.t().to(at::kDouble), b.to(at::kDouble));
  REQUIRE(test::max_abs(rows - expected) < 1e-4);
  ops::gemm_add(rows, a.t(), b);
  REQUIRE(test::max_abs(rows - 2 * expected) < 2e-4);
  REQUIRE(whole.isnan().sum().item<int64_t>() == 2 * size * size);
}

TEST_CASE("linear: weight gradients are stored, then added, in float32, on a GPU", "[linear][.gpu]") {
  const bool biased = GENERATE(false, true);
  test::check_weight_gradients_in_place(at::kCUDA, biased, 33, 24, 40);
  test::check_weight_gradients_in_place(at::kCUDA, biased, 31, 31, 33);
  test::check_weight_gradients_in_place(at::kCUDA, biased, 700, 512, 1536);
}

TEST_CASE("linear: errors", "[linear]") {
  const auto x = at::ones({2, 4}), weight = at::ones({3, 4});
  REQUIRE_THROWS_WITH(ops::linear(x, at::ones({3, 5})),
                      ContainsSubstring("[linear] x and weight must be [..., N_in] and [N_out, N_in], got [2, 4] and [3, 5]"));
  REQUIRE_THROWS_WITH(ops::linear(x, weight, at::ones({4})), ContainsSubstring("[linear] bias must be [N_out=3], got [4]"));
  REQUIRE_THROWS_WITH(ops::linear(x, weight.to(at::kDouble)),
                      ContainsSubstring("[linear] weight must be Float as x, got Double"));
}

}  // namespace scatterlm

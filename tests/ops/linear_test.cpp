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

TEST_CASE("linear_and_rows: several readers of the same rows", "[linear]") {
  const auto rows = GENERATE(1, 5, 40);
  const Tensors inputs = {test::randn({rows, 6}, 1), test::randn({3, 6}, 2), test::randn({4, 6}, 3)};
  const auto chain = [](const Tensors& x) {
    const auto first = ops::linear_and_rows(x[0], x[1]), second = ops::linear_and_rows(first.x_TN, x[2]);
    return at::cat({first.y_TM, second.y_TM, second.x_TN.tanh()}, 1);
  };
  const auto apart = [](const Tensors& x) { return at::cat({at::mm(x[0], x[1].t()), at::mm(x[0], x[2].t()), x[0].tanh()}, 1); };
  test::require_correct(chain, apart, inputs);
  // Nobody else reads the rows, or nobody the product; gradients without a memory of their own.
  const auto product = [](const Tensors& x) { return ops::linear_and_rows(x[0], x[1]).y_TM; };
  test::require_equals_reference(product, [](const Tensors& x) { return at::mm(x[0], x[1].t()); }, {inputs[0], inputs[1]});
  const auto alone = test::run([&](const Tensors& x) { return ops::linear_and_rows(x[0], inputs[1]).x_TN; }, {inputs[0]});
  REQUIRE(at::equal(alone.grads[0], test::run([](const Tensors& x) { return x[0] * 1; }, {inputs[0]}).grads[0]));
  const auto sums = [](const Tensors& x) {
    const auto out = ops::linear_and_rows(x[0], x[1]);
    return out.y_TM.sum() + out.x_TN.sum();
  };
  test::require_equals_reference(sums, [](const Tensors& x) { return at::mm(x[0], x[1].t()).sum() + x[0].sum(); },
                                 {inputs[0], inputs[1]});
}

TEST_CASE("linear_and_rows: rows that need no gradient come back as they are", "[linear]") {
  const auto x = test::randn({5, 6}, 1), weight = test::randn({3, 6}, 2).requires_grad_();
  const auto out = ops::linear_and_rows(x, weight);
  REQUIRE_FALSE(out.x_TN.requires_grad());
  out.y_TM.sum().backward();
  REQUIRE(test::max_abs(weight.grad() - x.sum(0).expand({3, 6})) < 1e-12);
}

TEST_CASE("add_linear: into the memory of the base", "[linear]") {
  const auto rows = GENERATE(0, 1, 33);
  const Tensors inputs = {test::randn({rows, 5}, 1), test::randn({rows, 6}, 2), test::randn({5, 6}, 3)};
  test::require_correct([](const Tensors& x) { return ops::add_linear(x[0] * 2, x[1], x[2]); },
                        [](const Tensors& x) { return x[0] * 2 + at::mm(x[1], x[2].t()); }, inputs);
  const auto base = inputs[0].clone();
  REQUIRE(ops::add_linear(base, inputs[1], inputs[2]).is_same(base));
}

TEST_CASE("linear_and_rows, add_linear: on a GPU", "[linear][.gpu]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  test::require_low_precision(
      [](const Tensors& x) {
        const auto up = ops::linear_and_rows(x[0], x[1]);
        return ops::add_linear(up.x_TN.sin(), up.y_TM, x[2]);
      },
      [](const Tensors& x) { return x[0].sin() + at::mm(at::mm(x[0], x[1].t()), x[2].t()); },
      {test::randn({130, 64}, 1), test::randn({96, 64}, 2), test::randn({64, 96}, 3)},
      {.dtype = dtype, .device = at::kCUDA, .ulps = 2});
}

TEST_CASE("linear_and_rows, add_linear: errors", "[linear]") {
  const auto x = at::ones({2, 4}), weight = at::ones({3, 4});
  REQUIRE_THROWS_WITH(
      ops::linear_and_rows(x.unsqueeze(0), weight),
      ContainsSubstring("[linear_and_rows] x and weight must be [T, N] and [M, N] of one dtype, got Float [1, 2, 4]"));
  REQUIRE_THROWS_WITH(ops::add_linear(at::ones({2, 3}), x, weight.to(at::kDouble)), ContainsSubstring("and Double [3, 4]"));
  REQUIRE_THROWS_WITH(ops::add_linear(at::ones({2, 4}), x, weight),
                      ContainsSubstring("[add_linear] base must be Float [2, 3], got Float [2, 4]"));
}

TEST_CASE("linear: weight gradients are stored, then added, in float32, on a GPU", "[linear][.gpu]") {
  const bool biased = GENERATE(false, true);
  for (const auto& product : test::products(biased)) {
    test::check_weight_gradients_in_place(product, at::kCUDA, biased, 33, 24, 40);
    test::check_weight_gradients_in_place(product, at::kCUDA, biased, 31, 31, 33);
    test::check_weight_gradients_in_place(product, at::kCUDA, biased, 700, 512, 1536);
  }
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

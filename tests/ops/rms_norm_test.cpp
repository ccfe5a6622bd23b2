#include "lib/ops/rms_norm.h"

#include "tests/ops/reference.h"

#include "tests/ops/rms_norm_cases.h"

namespace scatterlm {

using test::Tensors;

TEST_CASE("rms_norm: values and gradients at odd sizes", "[rms_norm]") {
  const auto rows = GENERATE(1, 17), width = GENERATE(1, 16, 31, 33);
  const auto op = [](const Tensors& x) { return ops::rms_norm(x[0], x[1], 1e-5); };
  const auto formula = [](const Tensors& x) { return reference::rms_norm(x[0], x[1], 1e-5); };
  const Tensors inputs = {3 * test::randn({rows, width}, 1), 1 + 0.1 * test::randn({width}, 2)};
  test::require_correct(op, formula, inputs);
}

TEST_CASE("rms_norm: rounds to bfloat16 before the weight", "[rms_norm]") {
  const auto x = test::randn({5, 7, 64}, 3).to(at::kBFloat16), weight = (1 + test::randn({64}, 4)).to(at::kBFloat16);
  const auto expected = reference::rms_norm(x.to(at::kFloat), at::ones({64}), 1e-5).to(at::kBFloat16) * weight;
  const auto difference = (ops::rms_norm(x, weight, 1e-5) != expected).sum().item<int64_t>();
  REQUIRE(difference <= 5);  // of 2240: only where the sums of squares differ in the last bit
}

TEST_CASE("rms_norm: same bits for any number of threads", "[rms_norm]") {
  const auto x = test::randn({301, 96}, 5).to(at::kFloat), weight = test::randn({96}, 6).to(at::kFloat);
  const auto op = [](const Tensors& in) { return ops::rms_norm(in[0], in[1], 1e-5); };
  test::require_thread_independent(op, {x, weight});
}

TEST_CASE("rms_norm: zeros, empty and strided input", "[rms_norm]") {
  const auto weight = at::ones({4});
  REQUIRE(at::equal(ops::rms_norm(at::zeros({2, 4}), weight, 1e-5), at::zeros({2, 4})));
  REQUIRE(ops::rms_norm(at::empty({0, 4}), weight, 1e-5).sizes() == at::IntArrayRef({0, 4}));
  const auto wide = test::randn({3, 8}, 7).to(at::kFloat);
  REQUIRE(at::equal(ops::rms_norm(wide.slice(1, 2, 6), weight, 0), ops::rms_norm(wide.slice(1, 2, 6).contiguous(), weight, 0)));
}

TEST_CASE("add_rms_norm: on a CPU the bits of an addition and a norm", "[rms_norm]") {
  const auto x = test::randn({3, 5, 24}, 8).to(at::kBFloat16), branch = test::randn({3, 5, 24}, 9).to(at::kBFloat16);
  const auto weight = test::randn({24}, 10).to(at::kBFloat16);
  const auto both = [](const at::Tensor& sum, const at::Tensor& y) { return at::stack({2 * sum, y}); };
  const auto fused = test::run(
      [&](const Tensors& in) {
        const auto [sum, y] = ops::add_rms_norm(in[0], in[1], in[2], 1e-5);
        return both(sum, y);
      },
      {x, branch, weight});
  const auto single = test::run(
      [&](const Tensors& in) {
        const auto sum = in[0] + in[1];
        return both(sum, ops::rms_norm(sum, in[2], 1e-5));
      },
      {x, branch, weight});
  REQUIRE(at::equal(fused.value, single.value));
  for (size_t i = 0; i < 3; ++i) REQUIRE(at::equal(fused.grads[i], single.grads[i]));
}

TEST_CASE("add_rms_norm: a sum without a branch has the same bits", "[rms_norm]") {
  test::require_sum_without_branch_has_the_same_bits(GENERATE(at::kFloat, at::kBFloat16), 24);
}

TEST_CASE("rms_norm: errors", "[rms_norm]") {
  REQUIRE_THROWS_WITH(ops::rms_norm(at::ones({2, 768}), at::ones({512}), 1e-5),
                      ContainsSubstring("[rms_norm] weight must be [D=768], got [512]"));
  REQUIRE_THROWS_WITH(ops::rms_norm(at::ones({2, 4}), at::ones({4}, at::kDouble), 1e-5),
                      ContainsSubstring("weight must be Float"));
  REQUIRE_THROWS_WITH(ops::rms_norm(at::ones({2, 4}, at::kHalf), at::ones({4}, at::kHalf), 1e-5), ContainsSubstring("dtype"));
}

TEST_CASE("add_rms_norm: errors", "[rms_norm]") {
  REQUIRE_THROWS_WITH(ops::add_rms_norm(at::ones({2, 4}), at::ones({4}), at::ones({4}), 1e-5),
                      ContainsSubstring("[add_rms_norm] branch must be Float [2, 4] as x, got Float [4]"));
  REQUIRE_THROWS_WITH(ops::add_rms_norm(at::ones({2, 4}), at::ones({2, 4}), at::ones({3}), 1e-5),
                      ContainsSubstring("weight must be [D=4], got [3]"));
}

TEST_CASE("rms_norm: on a GPU", "[rms_norm][.gpu]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const auto width = GENERATE(33, 64, 768, 2048, 7168);
  test::require_low_precision([](const Tensors& x) { return ops::rms_norm(x[0], x[1], 1e-5); },
                              [](const Tensors& x) { return reference::rms_norm(x[0], x[1], 1e-5); },
                              {test::randn({65, width}, 1), test::randn({width}, 2)}, {.dtype = dtype, .device = at::kCUDA});
}

TEST_CASE("add_rms_norm: on a GPU", "[rms_norm][.gpu]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const auto width = GENERATE(33, 64, 768, 2048, 7168);
  const auto op = [](const Tensors& x) {
    const auto [sum, y] = ops::add_rms_norm(x[0], x[1], x[2], 1e-5);
    return at::stack({2 * sum, y});
  };
  const auto reference = [](const Tensors& x) {
    const auto sum = x[0] + x[1];
    return at::stack({2 * sum, reference::rms_norm(sum, x[2], 1e-5)});
  };
  test::require_low_precision(op, reference,
                              {test::randn({1025, width}, 1), test::randn({1025, width}, 2), test::randn({width}, 3)},
                              {.dtype = dtype, .device = at::kCUDA});
}

TEST_CASE("add_rms_norm: a sum without a branch has the same bits, on a GPU", "[rms_norm][.gpu]") {
  const auto width = GENERATE(64, 2048, 7168);
  test::require_sum_without_branch_has_the_same_bits(at::device(at::kCUDA).dtype(at::kBFloat16), width);
}

}  // namespace scatterlm

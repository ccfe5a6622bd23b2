#include "kernels/gather_sum.h"

#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {
namespace {

struct Case {
  int tokens, top_k, n;
};

}  // namespace

TEST_CASE("gather_sum: values", KERNEL_TAGS) {
  const auto c = GENERATE(Case{0, 2, 8}, Case{1, 1, 8}, Case{5, 2, 264}, Case{3, 8, 2048}, Case{2, 11, 2056}, Case{2, 64, 40});
  const bool gated = GENERATE(false, true);
  INFO("T " << c.tokens << ", K " << c.top_k << ", n " << c.n << ", gated " << gated);
  const size_t rows = size_t(c.tokens) * c.top_k;
  const auto y = randn(rows * c.n, 1);
  const auto inverse = random_permutation(rows, 2);
  const auto gates = uniform(rows, 3);
  std::vector<double> expected(size_t(c.tokens) * c.n);
  for (size_t slot = 0; slot < rows; ++slot)
    for (int i = 0; i < c.n; ++i)
      expected[slot / c.top_k * c.n + i] += (gated ? gates[slot] : 1.0) * to_float(y[size_t(inverse[slot]) * c.n + i]);

  const Buffer<Bf16> y_RN(y), out(expected.size());
  const Buffer<int32_t> inverse_R(inverse);
  const Buffer<float> gates_R(gates);
  gather_sum({y_RN.data(), inverse_R.data(), gated ? gates_R.data() : nullptr, out.data(), c.tokens, c.top_k, c.n}, nullptr);
  REQUIRE((expected.empty() || rounding_errors(out.host(), expected) < 1.2));
}

TEST_CASE("gather_sum: n must be a multiple of 8", KERNEL_TAGS) {
  REQUIRE_THROWS_WITH(gather_sum({.num_tokens = 1, .top_k = 1, .n = 12}, nullptr),
                      "[gather_sum] n must be a multiple of 8, got 12");
}

TEST_CASE("sum_dgates: rows back to slots", KERNEL_TAGS) {
  const int rows = 300, partials = 3;
  const auto inverse = random_permutation(rows, 2);
  const auto partial = uniform(size_t(rows) * partials, 3);
  std::vector<float> expected(rows);
  for (int slot = 0; slot < rows; ++slot)
    for (int i = 0; i < partials; ++i) expected[slot] += partial[size_t(inverse[slot]) * partials + i];
  const Buffer<float> partial_R(partial), dgates(size_t{rows});
  const Buffer<int32_t> inverse_R(inverse);
  sum_dgates({partial_R.data(), inverse_R.data(), dgates.data(), rows, partials}, nullptr);
  REQUIRE(dgates.host() == expected);
}

}  // namespace scatterlm::kernels::test

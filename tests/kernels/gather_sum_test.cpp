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
  const auto c = GENERATE(Case{0, 2, 8}, Case{1, 1, 8}, Case{7, 1, 16}, Case{5, 2, 264}, Case{8, 2, 2056}, Case{6, 3, 40},
                          Case{5, 4, 72}, Case{3, 8, 2048}, Case{2, 11, 2056}, Case{2, 64, 40});
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

TEST_CASE("gather_sum: as many slots as each token has, summed in their order", KERNEL_TAGS) {
  const int top_k = GENERATE(1, 2, 3, 8), tokens = GENERATE(1, 4, 23), n = 24;
  INFO("T " << tokens << ", K " << top_k);
  std::vector<int32_t> offsets{0};
  for (const int count : random_rows(size_t(tokens), 2 * top_k + 3, 5)) offsets.push_back(offsets.back() + count);
  const auto rows = size_t(offsets.back());
  const auto y = randn(rows * n, 1);
  const auto inverse = random_permutation(rows, 2);
  const auto gates = uniform(rows, 3);
  std::vector<Bf16> expected;
  for (int t = 0; t < tokens; ++t)
    for (int i = 0; i < n; ++i) {
      float sum = 0;
      for (int slot = offsets[t]; slot < offsets[t + 1]; ++slot)
        sum = std::fma(gates[slot], to_float(y[size_t(inverse[slot]) * n + i]), sum);
      expected.push_back(to_bf16(sum));
    }
  const Buffer<Bf16> y_RN(y), out(expected.size());
  const Buffer<int32_t> inverse_R(inverse), offsets_T1(offsets);
  const Buffer<float> gates_R(gates);
  gather_sum({y_RN.data(), inverse_R.data(), gates_R.data(), out.data(), tokens, top_k, n, offsets_T1.data()}, nullptr);
  REQUIRE(out.host() == expected);
}

TEST_CASE("gather_sum: with gradients of gates beside", KERNEL_TAGS) {
  const int top_k = GENERATE(1, 2, 3, 8, 40), n = GENERATE(8, 264, 2056), tokens = 7, partials = 2;
  const bool listed = GENERATE(false, true), dotted = GENERATE(false, true);
  INFO("K " << top_k << ", n " << n << ", listed " << listed << ", dotted " << dotted);
  std::vector<int32_t> offsets{0};
  for (const int count : listed ? random_rows(size_t{tokens}, 2 * top_k + 1, 5) : std::vector<int>(tokens, top_k))
    offsets.push_back(offsets.back() + count);
  const auto rows = size_t(offsets.back());
  const Buffer<Bf16> y(randn(rows * n, 1)), out(size_t{tokens} * n), out_alone(size_t{tokens} * n);
  const Buffer<int32_t> inverse(random_permutation(rows, 2)), offsets_T1(offsets);
  const Buffer<float> partial(uniform(rows * partials, 3)), dots(uniform(rows, 4)), dgates(rows), dgates_alone(rows);
  const auto rows_into = [&](const Buffer<Bf16>& to) {
    return GatherSumArgs{y.data(), inverse.data(), nullptr, to.data(), tokens, top_k, n, listed ? offsets_T1.data() : nullptr};
  };
  const auto dgates_into = [&](const Buffer<float>& to) {
    return SumDgatesArgs{partial.data(), inverse.data(), to.data(), int64_t(rows), partials, dotted ? dots.data() : nullptr};
  };
  gather_sum_with_dgates(rows_into(out), dgates_into(dgates), nullptr);
  gather_sum(rows_into(out_alone), nullptr);
  sum_dgates(dgates_into(dgates_alone), nullptr);
  REQUIRE(out.host() == out_alone.host());
  REQUIRE(dgates.host() == dgates_alone.host());
}

TEST_CASE("gather_sum: n must be a multiple of 8", KERNEL_TAGS) {
  REQUIRE_THROWS_WITH(gather_sum({.num_tokens = 1, .top_k = 1, .n = 12}, nullptr),
                      "[gather_sum] rows of y must be multiples of 8 elements, got 12");
}

TEST_CASE("sum_dgates: rows back to slots", KERNEL_TAGS) {
  const int rows = 300, partials = 3;
  const bool dotted = GENERATE(false, true);
  const auto inverse = random_permutation(rows, 2);
  const auto partial = uniform(size_t(rows) * partials, 3);
  const auto dots = uniform(rows, 4);
  std::vector<float> expected(rows);
  for (int slot = 0; slot < rows; ++slot) {
    if (dotted) expected[slot] = dots[inverse[slot]];
    for (int i = 0; i < partials; ++i) expected[slot] += partial[size_t(inverse[slot]) * partials + i];
  }
  const Buffer<float> partial_R(partial), dots_R(dots), dgates(size_t{rows});
  const Buffer<int32_t> inverse_R(inverse);
  sum_dgates({partial_R.data(), inverse_R.data(), dgates.data(), rows, partials, dotted ? dots_R.data() : nullptr}, nullptr);
  REQUIRE(dgates.host() == expected);
}

}  // namespace scatterlm::kernels::test

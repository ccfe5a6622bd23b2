#include "kernels/grouped_gemm.h"

#include <tuple>

#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/oracle.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {
namespace {

constexpr int kTokens = 70;

/// Row 0 of a gathered operand is NaN and no row asks for it: what pads an expert's rows must be zeros, not some row.
std::vector<Bf16> operand(const Experts& experts, bool gathered, int width, unsigned seed) {
  auto values = randn(size_t(gathered ? kTokens : experts.num_rows()) * width, seed);
  if (gathered) std::fill_n(values.begin(), width, Bf16{0x7FC0});
  return values;
}
std::vector<int32_t> rows_but_0(const Experts& experts) {
  auto rows = random_rows(experts.num_rows(), kTokens - 1, 3);
  for (auto& row : rows) ++row;
  return rows;
}

struct Problem {
  Experts experts;
  int m, n;
  bool gather_a, gather_b;
  int num_sms = 3;
  std::vector<Bf16> a = operand(experts, gather_a, m, 1), b = operand(experts, gather_b, n, 2);
  std::vector<int32_t> rows = rows_but_0(experts);
  std::vector<int32_t> a_rows = gather_a ? rows : std::vector<int32_t>(), b_rows = gather_b ? rows : std::vector<int32_t>();
};

/// Pieces of the experts that the kernel for Hopper divides.
int num_pieces(const Problem& p) {
  WgradSplit split{};
  const int tiles = ceil_div(p.m, 128) * ceil_div(p.n, 256);
  WgradPlanner<OneLane>(p.experts.offsets.data(), p.experts.num_experts(), tiles, p.num_sms, split).plan();
  return split.num_pieces;
}

template <class T>
std::vector<T> run(const Problem& p, GradientUpdate update, const std::vector<T>& before, int capability) {
  const DeviceExperts device(p.experts);
  const Buffer<Bf16> a(p.a), b(p.b);
  const Buffer<int32_t> rows(p.rows);
  const Buffer<T> dw(before);
  WgradArgs args{.experts = device.rows,
                 .a = a.data(),
                 .a_rows_R = p.gather_a ? rows.data() : nullptr,
                 .b = b.data(),
                 .b_rows_R = p.gather_b ? rows.data() : nullptr,
                 .m = p.m,
                 .n = p.n,
                 .dw = dw.data(),
                 .dw_type = sizeof(T) == 2 ? DataType::kBfloat16 : DataType::kFloat32,
                 .update = update,
                 .num_sms = p.num_sms,
                 .compute_capability = capability};
  const Buffer<char> workspace(static_cast<size_t>(grouped_gemm_wgrad_workspace_bytes(args)));
  args.workspace = workspace.data();
  grouped_gemm_wgrad(args, nullptr);
  REQUIRE(device.is_as_before(p.experts));
  workspace.host();  // looks at its guards
  return dw.host();
}

/// NaN everywhere: a store must write every element, also those of experts without rows.
template <class T>
std::vector<T> poisoned(size_t size) {
  std::vector<T> values(size);
  std::memset(static_cast<void*>(values.data()), 0xFF, size * sizeof(T));
  return values;
}

}  // namespace

TEST_CASE("grouped_gemm_wgrad: values", KERNEL_TAGS) {
  const int capability = GENERATE(from_range(kFamilies));
  const auto experts = GENERATE(from_range(expert_tables()));
  const auto [m, n] = GENERATE(std::pair{8, 8}, std::pair{136, 264}, std::pair{200, 72});
  const bool gather_a = GENERATE(false, true), gather_b = GENERATE(false, true);
  INFO("capability " << capability << ", rows " << experts.num_rows() << ", m " << m << ", n " << n << ", gathered " << gather_a
                     << gather_b);
  const Problem p{experts, m, n, gather_a, gather_b};
  const auto expected = oracle::wgrad(experts, p.a, p.a_rows, p.b, p.b_rows, m, n);
  REQUIRE(rounding_errors(run(p, GradientUpdate::kStore, poisoned<Bf16>(expected.size()), capability), expected) < 1.2);
  const auto fp32 = run(p, GradientUpdate::kStore, poisoned<float>(expected.size()), capability);
  REQUIRE(relative_error(fp32, expected) < 1e-5);
  for (size_t i = 0; i < expected.size(); ++i)
    if (experts.counts[i / (size_t(m) * n)] == 0) REQUIRE(fp32[i] == 0.0f);
}

TEST_CASE("grouped_gemm_wgrad: adds to what is there", KERNEL_TAGS) {
  const int capability = GENERATE(from_range(kFamilies));
  const Problem p{expert_tables()[0], 136, 264, false, true};
  const auto product = oracle::wgrad(p.experts, p.a, p.a_rows, p.b, p.b_rows, p.m, p.n);
  const auto before = randn(product.size(), 4, 10);
  auto expected = product;
  std::vector<float> before_fp32(before.size());
  for (size_t i = 0; i < before.size(); ++i) expected[i] += before_fp32[i] = to_float(before[i]);
  REQUIRE(relative_error(run(p, GradientUpdate::kAdd, before_fp32, capability), expected) < 1e-5);
  REQUIRE(rounding_errors(run(p, GradientUpdate::kAdd, before, capability), expected) < 1.5);  // rounded twice
}

TEST_CASE("grouped_gemm_wgrad: the same bits twice", KERNEL_TAGS) {
  const int capability = GENERATE(from_range(kFamilies));
  const Problem p{expert_tables()[0], 72, 136, true, true};
  const auto before = poisoned<float>(size_t(p.experts.num_experts()) * p.m * p.n);
  REQUIRE(run(p, GradientUpdate::kStore, before, capability) == run(p, GradientUpdate::kStore, before, capability));
}

TEST_CASE("grouped_gemm_wgrad: rows of long experts divided among blocks", KERNEL_TAGS) {
  // The last block of an expert is not whole; on a GPU several blocks work on a tile at once. Two pieces, or more than the
  // kernel reads of several strips at once.
  struct Case {
    std::vector<int> counts;
    int m, n, num_sms, num_pieces;
  };
  const auto [counts, m, n, num_sms, pieces] =
      GENERATE(Case{{40, 2500, 0, 900, 768}, 136, 264, 24, 2}, Case{{40, 2500, 0, 900, 768}, 72, 8, 6, 2},
               Case{{70, 6500}, 72, 8, 12, 6});
  const Experts experts(counts);
  const bool gather = GENERATE(false, true);
  INFO("rows " << experts.num_rows() << ", m " << m << ", n " << n << ", gathered " << gather);
  const Problem p{experts, m, n, gather, gather, num_sms};
  REQUIRE(num_pieces(p) == pieces);
  const auto product = oracle::wgrad(experts, p.a, p.a_rows, p.b, p.b_rows, m, n);
  const auto fp32 = run(p, GradientUpdate::kStore, poisoned<float>(product.size()), kHopper);
  REQUIRE(relative_error(fp32, product) < 1e-5);
  REQUIRE(fp32 == run(p, GradientUpdate::kStore, poisoned<float>(product.size()), kHopper));
  REQUIRE(rounding_errors(run(p, GradientUpdate::kStore, poisoned<Bf16>(product.size()), kHopper), product) < 1.2);

  const auto before = randn(product.size(), 4, 10);
  auto expected = product;
  std::vector<float> before_fp32(before.size());
  for (size_t i = 0; i < before.size(); ++i) expected[i] += before_fp32[i] = to_float(before[i]);
  REQUIRE(relative_error(run(p, GradientUpdate::kAdd, before_fp32, kHopper), expected) < 1e-5);
  REQUIRE(rounding_errors(run(p, GradientUpdate::kAdd, before, kHopper), expected) < 1.2);
}

#ifndef SCATTERLM_EMULATED
TEST_CASE("grouped_gemm_wgrad: early routing at full size", KERNEL_TAGS) {
  std::vector<int> skewed(64, 100), one(64, 0), collapsed(64, 3);
  for (int i = 0; i < 12; ++i) skewed[i * 5] = 20000 / (i + 1);
  for (int i = 0; i < 8; ++i) collapsed[i * 7 + 2] = 8192 - 70 * i;
  one[17] = 66000;  // more than 1000 blocks of rows
  const auto counts = GENERATE_COPY(skewed, one, collapsed);
  const auto [m, n, gather_a] = GENERATE(std::tuple{256, 256, true}, std::tuple{200, 264, false});
  INFO("most rows " << *std::max_element(counts.begin(), counts.end()) << ", m " << m << ", gathered a " << gather_a);
  const Problem p{Experts(counts), m, n, gather_a, !gather_a, /*num_sms=*/132};
  REQUIRE(num_pieces(p) > 0);
  const auto product = oracle::wgrad(p.experts, p.a, p.a_rows, p.b, p.b_rows, p.m, p.n);
  const auto first = run(p, GradientUpdate::kStore, poisoned<float>(product.size()), kHopper);
  REQUIRE(relative_error(first, product) < 1e-5);
  for (int i = 0; i < 50; ++i) REQUIRE(run(p, GradientUpdate::kStore, poisoned<float>(product.size()), kHopper) == first);
  auto twice = product;
  for (double& x : twice) x *= 2;
  REQUIRE(relative_error(run(p, GradientUpdate::kAdd, first, kHopper), twice) < 1e-5);
}
#endif

TEST_CASE("grouped_gemm_wgrad: no rows at all", KERNEL_TAGS) {
  const int capability = GENERATE(from_range(kFamilies));
  const Problem p{Experts({0, 0}), 16, 24, true, false};
  const size_t size = 2 * 16 * 24;
  REQUIRE(run(p, GradientUpdate::kStore, poisoned<float>(size), capability) == std::vector<float>(size, 0.0f));
  REQUIRE(run(p, GradientUpdate::kAdd, std::vector<float>(size, 3.0f), capability) == std::vector<float>(size, 3.0f));
}

}  // namespace scatterlm::kernels::test

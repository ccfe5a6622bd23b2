#include "kernels/grouped_gemm.h"

#include "kernels/device/error.h"
#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/oracle.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {
namespace {

struct Widths {
  int n, k;
};

/// Below one tile, tile edges in both widths, fewer blocks of k than the epilogue has panels, more of both.
std::vector<Widths> widths() { return {{8, 8}, {256, 64}, {328, 200}, {264, 456}}; }

struct Inputs {
  Inputs(const Experts& experts, Widths w, bool gathered)
      : a(randn(size_t(gathered ? kTokens : experts.num_rows()) * w.k, 1)),
        b(randn(size_t(experts.num_experts()) * w.n * w.k, 2, 1 / std::sqrt(float(w.k)))),
        rows(gathered ? random_rows(experts.num_rows(), kTokens, 3) : std::vector<int32_t>()) {}
  static constexpr int kTokens = 70;
  std::vector<Bf16> a, b;
  std::vector<int32_t> rows;
};

/// By the kernels of many rows. bias may be empty: none.
std::vector<Bf16> run_fwd(const Experts& experts, Widths w, const Inputs& in, int num_sms, int capability,
                          const std::vector<Bf16>& bias = {}) {
  const DeviceExperts device(experts);
  const Buffer<Bf16> a(in.a), b(in.b), bias_EN(bias);
  const Buffer<int32_t> rows(in.rows);
  const Buffer<Bf16> c(size_t(experts.num_rows()) * w.n);
  grouped_gemm_fwd(
      {.product = {device.rows, a.data(), in.rows.empty() ? nullptr : rows.data(), b.data(), w.n, w.k, num_sms, capability},
       .c = c.data(),
       .bias = bias.empty() ? nullptr : bias_EN.data(),
       .small_m_kernel = false},
      nullptr);
  REQUIRE(device.is_as_before(experts));
  return c.host();
}

std::vector<Bf16> run_dgrad(const Experts& experts, Widths w, const Inputs& in, int num_sms, int capability) {
  const DeviceExperts device(experts);
  const Buffer<Bf16> a(in.a), b(in.b), c(size_t(experts.num_rows()) * w.n);
  const Buffer<int32_t> rows(in.rows);
  grouped_gemm_dgrad(
      {.product = {device.rows, a.data(), in.rows.empty() ? nullptr : rows.data(), b.data(), w.n, w.k, num_sms, capability},
       .c = c.data()},
      nullptr);
  REQUIRE(device.is_as_before(experts));
  return c.host();
}

}  // namespace

TEST_CASE("grouped_gemm: values", KERNEL_TAGS) {
  const int capability = GENERATE(from_range(kFamilies));
  const auto experts = GENERATE(from_range(expert_tables()));
  const auto w = GENERATE(from_range(widths()));
  const bool gathered = GENERATE(false, true), transposed = GENERATE(false, true);
  INFO("capability " << capability << ", rows " << experts.num_rows() << ", n " << w.n << ", k " << w.k << ", gathered "
                     << gathered << ", transposed " << transposed);
  const Inputs in(experts, w, gathered);
  const auto expected = oracle::grouped_gemm(experts, in.a, in.rows, in.b, w.n, w.k, transposed);
  const auto actual = transposed ? run_dgrad(experts, w, in, 3, capability) : run_fwd(experts, w, in, 3, capability);
  REQUIRE(rounding_errors(actual, expected) < 1.2);
}

TEST_CASE("grouped_gemm: a bias of each expert", KERNEL_TAGS) {
  const int capability = GENERATE(from_range(kFamilies));
  const auto experts = GENERATE(from_range(expert_tables()));
  const auto w = GENERATE(from_range(widths()));
  const bool gathered = GENERATE(false, true);
  INFO("capability " << capability << ", rows " << experts.num_rows() << ", n " << w.n << ", k " << w.k << ", gathered "
                     << gathered);
  const Inputs in(experts, w, gathered);
  const auto bias = randn(size_t(experts.num_experts()) * w.n, 4);
  auto expected = oracle::grouped_gemm(experts, in.a, in.rows, in.b, w.n, w.k, false);
  oracle::add_bias(experts, expected, bias, w.n);
  REQUIRE(rounding_errors(run_fwd(experts, w, in, 3, capability, bias), expected) < 1.2);
}

TEST_CASE("grouped_gemm: rows stored where a list says", KERNEL_TAGS) {
  const int capability = GENERATE(from_range(kFamilies));
  const auto experts = GENERATE(from_range(expert_tables()));
  const auto w = GENERATE(Widths{8, 8}, Widths{328, 200});
  const bool gathered = GENERATE(false, true), transposed = GENERATE(false, true);
  const Inputs in(experts, w, gathered);
  const size_t rows = experts.num_rows(), spare = 5;
  auto places = random_permutation(rows + spare, 6);  // five rows of c get nothing
  places.resize(rows);
  const DeviceExperts device(experts);
  const Buffer<Bf16> a(in.a), b(in.b), c((rows + spare) * w.n);
  const Buffer<int32_t> a_rows(in.rows), c_rows(places);
  const GroupedProduct product{device.rows, a.data(), gathered ? a_rows.data() : nullptr, b.data(), w.n, w.k, 3, capability};
  if (transposed)
    grouped_gemm_dgrad({.product = product, .c = c.data(), .c_rows_R = c_rows.data()}, nullptr);
  else
    grouped_gemm_fwd({.product = product, .c = c.data(), .c_rows_R = c_rows.data(), .small_m_kernel = false}, nullptr);

  const auto expected = oracle::grouped_gemm(experts, in.a, in.rows, in.b, w.n, w.k, transposed);
  const auto actual = c.host();
  std::vector<Bf16> stored(expected.size());
  std::vector<bool> written(rows + spare);
  for (size_t m = 0; m < rows; ++m) {
    std::copy_n(actual.begin() + size_t(places[m]) * w.n, w.n, stored.begin() + m * w.n);
    written[places[m]] = true;
  }
  REQUIRE(rounding_errors(stored, expected) < 1.2);
  for (size_t i = 0; i < actual.size(); ++i)
    if (!written[i / w.n]) REQUIRE(actual[i] == 0xFFFF);
}

/// Of several blocks only on a GPU: see emulated/machine.h.
TEST_CASE("grouped_gemm: the same bits on any number of blocks, twice", KERNEL_TAGS) {
  const int capability = GENERATE(from_range(kFamilies));
  const auto experts = expert_tables()[0];
  const Widths w{328, 200};
  const Inputs in(experts, w, true);
  const auto first = run_fwd(experts, w, in, 1, capability);
  for (const int num_sms : {1, 4, 132}) REQUIRE(run_fwd(experts, w, in, num_sms, capability) == first);
}

TEST_CASE("grouped_gemm: no rows, and more experts than rows", KERNEL_TAGS) {
  const int capability = GENERATE(from_range(kFamilies));
  const Widths w{264, 72};
  for (const auto& experts : {Experts({0, 0}), Experts(std::vector<int>(300, 0)), [] {
                                std::vector<int> counts(700, 0);
                                counts[1] = counts[350] = counts[699] = 3;
                                return Experts(counts);
                              }()}) {
    const Inputs in(experts, w, false);
    const auto expected = oracle::grouped_gemm(experts, in.a, in.rows, in.b, w.n, w.k, false);
    const auto actual = run_fwd(experts, w, in, 2, capability);
    REQUIRE((experts.num_rows() == 0 || rounding_errors(actual, expected) < 1.2));
  }
}

TEST_CASE("grouped_gemm: what cannot be copied in pieces of 16 bytes is refused", KERNEL_TAGS) {
  const Experts experts({4});
  const DeviceExperts device(experts);
  const Buffer<Bf16> a(size_t{256}), b(size_t{256}), c(size_t{256});
  const GroupedProduct good{device.rows, a.data(), nullptr, b.data(), 8, 16, 1, kHopper};
  auto odd = good;
  odd.k = 12;
  REQUIRE_THROWS_WITH(grouped_gemm_fwd({.product = odd, .c = c.data()}, nullptr),
                      "[grouped_gemm_fwd] rows of a must be multiples of 8 elements, got 12");
  auto crooked = good;
  crooked.a = a.data() + 1;
  REQUIRE_THROWS_WITH(grouped_gemm_dgrad({.product = crooked, .c = c.data()}, nullptr),
                      "[grouped_gemm_dgrad] a must be aligned to 16 bytes");
  REQUIRE_THROWS_WITH(grouped_gemm_activation_fwd({good, Activation::kGelu, c.data(), c.data()}, nullptr),
                      "[grouped_gemm_activation_fwd] rows of a must be named by a_rows");
}

}  // namespace scatterlm::kernels::test

// The forward products of at most kSmallM rows, by the kernel of their own (kernels/grouped_gemm/small_m.cu).
#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/oracle.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {
namespace {

struct Widths {
  int n, k;
};

/// One run of columns and one lane's k; a second run that is not there and lanes without k; more k than the warps have in one
/// turn, by a lane.
std::vector<Widths> widths() { return {{8, 8}, {24, 200}, {40, 520}}; }

constexpr int kTokens = 37;

/// One row, two, a whole group of eight and one more, all that there may be, in one expert and in many; the last is for the
/// other kernels again.
std::vector<Experts> small_m_tables() {
  std::vector<int> many(700, 0);
  many[1] = many[350] = many[699] = 3;
  return {Experts({1}),          Experts({0, 0, 1, 0}),  Experts({1, 1}),     Experts({0, 8}),
          Experts({2, 0, 6, 1}), Experts({0, 9, 0, 17}), Experts({0, 0, 32}), Experts(std::vector<int>(32, 1)),
          Experts(many),         Experts({25, 0, 7, 0}), Experts({0, 33})};
}

struct Inputs {
  Inputs(const Experts& experts, Widths w, bool gathered, int halves = 1)
      : a(randn(size_t(gathered ? kTokens : experts.num_rows()) * w.k, 1)),
        b(randn(size_t(experts.num_experts()) * halves * w.n * w.k, 2, 1 / std::sqrt(float(w.k)))),
        rows(gathered ? random_rows(experts.num_rows(), kTokens, 3) : std::vector<int32_t>()) {}
  std::vector<Bf16> a, b;
  std::vector<int32_t> rows;
};

/// c has `spare` more rows than the product.
std::vector<Bf16> run(const Experts& experts, Widths w, const Inputs& in, const std::vector<int32_t>& c_rows = {},
                      int spare = 0, const std::vector<Bf16>& bias = {}) {
  const DeviceExperts device(experts);
  const Buffer<Bf16> a(in.a), b(in.b), bias_EN(bias), c(size_t(experts.num_rows() + spare) * w.n);
  const Buffer<int32_t> a_rows(in.rows), places(c_rows);
  const int32_t* rows = in.rows.empty() ? nullptr : a_rows.data();
  grouped_gemm_fwd({.product = {device.rows, a.data(), rows, b.data(), w.n, w.k, 3, kHopper},
                    .c = c.data(),
                    .c_rows_R = c_rows.empty() ? nullptr : places.data(),
                    .bias = bias.empty() ? nullptr : bias_EN.data()},
                   nullptr);
  return c.host();
}

}  // namespace

TEST_CASE("small_m: values", KERNEL_TAGS) {
  const auto experts = GENERATE(from_range(small_m_tables()));
  const auto w = GENERATE(from_range(widths()));
  const bool gathered = GENERATE(false, true);
  INFO("rows " << experts.num_rows() << ", experts " << experts.num_experts() << ", n " << w.n << ", k " << w.k << ", gathered "
               << gathered);
  const Inputs in(experts, w, gathered);
  const auto expected = oracle::grouped_gemm(experts, in.a, in.rows, in.b, w.n, w.k, false);
  const auto actual = run(experts, w, in);
  REQUIRE(rounding_errors(actual, expected) < 1.2);
  REQUIRE(run(experts, w, in) == actual);
}

TEST_CASE("small_m: a bias of each expert", KERNEL_TAGS) {
  const auto experts = GENERATE(from_range(small_m_tables()));
  const auto w = GENERATE(from_range(widths()));
  const Inputs in(experts, w, true);
  const auto bias = randn(size_t(experts.num_experts()) * w.n, 4);
  auto expected = oracle::grouped_gemm(experts, in.a, in.rows, in.b, w.n, w.k, false);
  oracle::add_bias(experts, expected, bias, w.n);
  REQUIRE(rounding_errors(run(experts, w, in, {}, 0, bias), expected) < 1.2);
}

TEST_CASE("small_m: without offsets one expert has all rows", KERNEL_TAGS) {
  const auto w = GENERATE(from_range(widths()));
  const int rows = GENERATE(1, 8, 9, 32);
  const Experts experts({rows});
  const Inputs in(experts, w, false);
  const auto bias = randn(size_t(w.n), 4);
  const Buffer<Bf16> a(in.a), b(in.b), bias_N(bias), c(size_t(rows) * w.n);
  GroupedGemmFwdArgs args{.product = {{nullptr, nullptr, 1, rows}, a.data(), nullptr, b.data(), w.n, w.k, 3, kHopper},
                          .c = c.data(),
                          .bias = bias_N.data()};
  grouped_gemm_fwd(args, nullptr);
  REQUIRE(c.host() == run(experts, w, in, {}, 0, bias));
  args.product.experts.num_rows = 33;
  REQUIRE_THROWS_WITH(grouped_gemm_fwd(args, nullptr), "[grouped_gemm_fwd] without offsets there may be 32 rows, got 33");
}

TEST_CASE("small_m: rows stored where a list says", KERNEL_TAGS) {
  const auto experts = GENERATE(from_range(small_m_tables()));
  const bool gathered = GENERATE(false, true);
  constexpr Widths w{24, 200};
  constexpr int kSpare = 5;
  const Inputs in(experts, w, gathered);
  const auto places = random_permutation(size_t(experts.num_rows() + kSpare), 6);
  const auto product = run(experts, w, in);
  const auto placed = run(experts, w, in, places, kSpare);
  for (int m = 0; m < experts.num_rows() + kSpare; ++m) {
    const bool spare = m >= experts.num_rows();
    for (int j = 0; j < w.n; ++j)
      REQUIRE(placed[size_t(places[m]) * w.n + j] == (spare ? Bf16{0xFFFF} : product[size_t(m) * w.n + j]));
  }
}

TEST_CASE("small_m: up projection with its activation", KERNEL_TAGS) {
  const auto kind =
      GENERATE(Activation::kSwiglu, Activation::kGeglu, Activation::kReglu, Activation::kRelu2, Activation::kGelu);
  const auto experts = GENERATE(Experts({0, 1}), Experts({2, 0, 6}), Experts({0, 9, 0, 17, 1}), Experts({32}));
  const auto w = GENERATE(from_range(widths()));
  const bool biased = GENERATE(false, true);
  INFO("biased " << biased << ", activation " << int(kind) << ", rows " << experts.num_rows() << ", F " << w.n << ", D "
                 << w.k);
  const int halves = is_gated(kind) ? 2 : 1;
  const Inputs in(experts, w, true, halves);
  const DeviceExperts device(experts);
  const auto bias = randn(size_t(experts.num_experts()) * halves * w.n, 4);
  const Buffer<Bf16> bias_EN(bias), x(in.a), w1(in.b), h(size_t(experts.num_rows()) * halves * w.n),
      act(size_t(experts.num_rows()) * w.n);
  const Buffer<int32_t> tokens(in.rows);
  const GroupedProduct product{device.rows, x.data(), tokens.data(), w1.data(), w.n, w.k, 3, kHopper};
  grouped_gemm_activation_fwd({product, kind, h.data(), act.data(), biased ? bias_EN.data() : nullptr}, nullptr);
  auto expected = oracle::grouped_gemm(experts, in.a, in.rows, in.b, halves * w.n, w.k, false);
  if (biased) oracle::add_bias(experts, expected, bias, halves * w.n);
  REQUIRE(rounding_errors(h.host(), expected) < 1.2);
  REQUIRE(rounding_errors(act.host(), oracle::activation(kind, h.host(), w.n)) < 1.5);
}

TEST_CASE("small_m: which kernel runs", KERNEL_TAGS) {
  const int capability = GENERATE(from_range(kFamilies)), rows = GENERATE(32, 33);
  const bool allowed = GENERATE(false, true), up = GENERATE(false, true);
  INFO("capability " << capability << ", rows " << rows << ", allowed " << allowed << ", up projection " << up);
  constexpr Widths w{40, 64};
  const Experts experts({0, rows});
  const Inputs in(experts, w, true);
  const DeviceExperts device(experts);
  const Buffer<int32_t> no_tiles(std::vector<int32_t>(5, 0)), a_rows(in.rows);  // others than that of few rows go by tiles
  const Buffer<Bf16> a(in.a), b(in.b), c(size_t(rows) * w.n), act(size_t(rows) * w.n);
  GroupedProduct product{device.rows, a.data(), a_rows.data(), b.data(), w.n, w.k, 3, capability};
  product.experts.tiles_E3 = no_tiles.data();
  if (up)
    grouped_gemm_activation_fwd(
        {.product = product, .activation = Activation::kRelu2, .h = c.data(), .act = act.data(), .small_m_kernel = allowed},
        nullptr);
  else
    grouped_gemm_fwd({.product = product, .c = c.data(), .small_m_kernel = allowed}, nullptr);
  const auto stored = c.host();
  const auto untouched = std::count(stored.begin(), stored.end(), Bf16{0xFFFF});
  REQUIRE(untouched == (allowed && rows == 32 ? 0 : rows * w.n));
}

TEST_CASE("small_m: a row's bits depend on no other row", KERNEL_TAGS) {
  constexpr Widths w{40, 520};
  const Inputs all(Experts({32}), w, false);
  const auto product = run(Experts({32}), w, all);
  for (const int rows : {1, 8, 9}) {
    auto some = all;
    some.a.resize(size_t(rows) * w.k);
    const std::vector<Bf16> expected(product.begin(), product.begin() + rows * w.n);
    REQUIRE(run(Experts({rows}), w, some) == expected);
  }
}

}  // namespace scatterlm::kernels::test

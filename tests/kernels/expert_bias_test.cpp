#include "kernels/expert_bias.h"

#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {
namespace {

constexpr int kTokens = 70;

/// Below one block of columns, edges of it, several.
std::vector<int> widths() { return {8, 128, 136, 520}; }

/// Rows of dy in expert order, or of tokens and with gates of slots.
struct Rows {
  Rows(const Experts& experts, int n, bool of_tokens)
      : experts(experts),
        n(n),
        of_tokens(of_tokens),
        dy(randn(size_t(of_tokens ? kTokens : experts.num_rows()) * n, 1)),
        tokens(random_rows(experts.num_rows(), kTokens, 2)),
        sorted(random_permutation(experts.num_rows(), 3)),
        gates(uniform(experts.num_rows(), 4)) {}

  double value(int m, int column) const { return to_float(dy[size_t(of_tokens ? tokens[m] : m) * n + column]); }
  double scale(int m) const { return of_tokens ? gates[sorted[m]] : 1.0; }

  Experts experts;
  int n;
  bool of_tokens;
  std::vector<Bf16> dy;
  std::vector<int32_t> tokens, sorted;
  std::vector<float> gates;
};

std::vector<double> exact_grad(const Rows& rows) {
  std::vector<double> db(size_t(rows.experts.num_experts()) * rows.n);
  for (int e = 0; e < rows.experts.num_experts(); ++e)
    for (int m = rows.experts.offsets[e]; m < rows.experts.offsets[e + 1]; ++m)
      for (int i = 0; i < rows.n; ++i) db[size_t(e) * rows.n + i] += rows.scale(m) * rows.value(m, i);
  return db;
}

/// Contents of db afterwards.
template <class T>
std::vector<T> run_grad(const Rows& rows, GradientUpdate update, const Buffer<T>& db) {
  const DeviceExperts device(rows.experts);
  const Buffer<Bf16> dy(rows.dy);
  const Buffer<int32_t> tokens(rows.tokens), sorted(rows.sorted);
  const Buffer<float> gates(rows.gates);
  expert_bias_grad({.experts = device.rows,
                    .dy = dy.data(),
                    .dy_rows_R = rows.of_tokens ? tokens.data() : nullptr,
                    .gates = rows.of_tokens ? gates.data() : nullptr,
                    .sorted_R = sorted.data(),
                    .n = rows.n,
                    .db = db.data(),
                    .db_type = sizeof(T) == 2 ? DataType::kBfloat16 : DataType::kFloat32,
                    .update = update},
                   nullptr);
  return db.host();
}

}  // namespace

TEST_CASE("expert_bias_grad: stored, 0 for experts without rows, twice the same bits", KERNEL_TAGS) {
  const auto experts = GENERATE(from_range(expert_tables()));
  const int n = GENERATE(from_range(widths()));
  const bool of_tokens = GENERATE(false, true);
  INFO("rows " << experts.num_rows() << ", n " << n << ", of tokens " << of_tokens);
  const Rows rows(experts, n, of_tokens);
  const auto exact = exact_grad(rows);
  const auto wide = run_grad(rows, GradientUpdate::kStore, Buffer<float>(exact.size()));
  REQUIRE(relative_error(wide, exact) < 1e-6);
  REQUIRE(run_grad(rows, GradientUpdate::kStore, Buffer<float>(exact.size())) == wide);
  REQUIRE(rounding_errors(run_grad(rows, GradientUpdate::kStore, Buffer<Bf16>(exact.size())), exact) < 1.2);
}

TEST_CASE("expert_bias_grad: added", KERNEL_TAGS) {
  const auto experts = expert_tables()[0];
  const Rows rows(experts, 136, GENERATE(false, true));
  auto exact = exact_grad(rows);
  const auto before = uniform(exact.size(), 6);
  for (size_t i = 0; i < exact.size(); ++i) exact[i] += before[i];
  const auto sum = run_grad(rows, GradientUpdate::kAdd, Buffer<float>(before));
  REQUIRE(relative_error(sum, exact) < 1e-6);
  for (int i = 0; i < rows.n; ++i) REQUIRE(sum[i] == before[i]);  // expert 0 has no rows
}

TEST_CASE("expert_bias_grad: no rows", KERNEL_TAGS) {
  const Rows rows(Experts({0, 0}), 8, false);
  REQUIRE(run_grad(rows, GradientUpdate::kStore, Buffer<float>(size_t{16})) == std::vector<float>(16));
}

TEST_CASE("expert_bias_dots: values", KERNEL_TAGS) {
  const auto experts = GENERATE(from_range(expert_tables()));
  const int n = GENERATE(from_range(widths()));
  INFO("rows " << experts.num_rows() << ", n " << n);
  const Rows rows(experts, n, true);
  const auto bias = randn(size_t(experts.num_experts()) * n, 7);
  std::vector<double> exact(experts.num_rows());
  for (int e = 0; e < experts.num_experts(); ++e)
    for (int m = experts.offsets[e]; m < experts.offsets[e + 1]; ++m)
      for (int i = 0; i < n; ++i) exact[m] += rows.value(m, i) * to_float(bias[size_t(e) * n + i]);
  const DeviceExperts device(experts);
  const Buffer<Bf16> dy(rows.dy), bias_EN(bias);
  const Buffer<int32_t> tokens(rows.tokens);
  const Buffer<float> dots(exact.size());
  expert_bias_dots({device.rows, dy.data(), tokens.data(), bias_EN.data(), n, dots.data()}, nullptr);
  REQUIRE(relative_error(dots.host(), exact) < 1e-6);
}

TEST_CASE("expert_bias: n must be a multiple of 8", KERNEL_TAGS) {
  REQUIRE_THROWS_WITH(expert_bias_grad({.n = 12}, nullptr),
                      "[expert_bias_grad] rows of dy must be multiples of 8 elements, got 12");
  REQUIRE_THROWS_WITH(expert_bias_dots({.n = 12}, nullptr),
                      "[expert_bias_dots] rows of dy must be multiples of 8 elements, got 12");
}

}  // namespace scatterlm::kernels::test

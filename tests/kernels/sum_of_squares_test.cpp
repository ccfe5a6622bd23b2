#include "kernels/sum_of_squares.h"

#include <numeric>

#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {
namespace {

template <class T>
double sum(const std::vector<T>& values, size_t num_partials) {
  const Buffer<T> x(values);
  const Buffer<float> partials(num_partials);
  const auto type = std::is_same_v<T, float> ? DataType::kFloat32 : DataType::kBfloat16;
  sum_of_squares({x.data(), type, static_cast<int64_t>(values.size()), partials.data(), static_cast<int64_t>(num_partials)},
                 nullptr);
  const auto parts = partials.host();
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

}  // namespace

TEST_CASE("sum_of_squares: every length, with more and with fewer blocks than it has chunks", KERNEL_TAGS) {
  const auto count = GENERATE(size_t{0}, size_t{1}, size_t{7}, size_t{2048}, size_t{2049}, size_t{30011});
  const auto num_partials = GENERATE(size_t{1}, size_t{3}, size_t{20});
  const auto half = randn(count, 11);
  std::vector<float> full;
  double expected = 0, of_full = 0;
  for (const Bf16 x : half) {
    full.push_back(to_float(x) * 1.001f);
    expected += static_cast<double>(to_float(x)) * to_float(x);
    of_full += static_cast<double>(full.back()) * full.back();
  }
  REQUIRE(std::abs(sum(half, num_partials) - expected) <= 3e-7 * expected);
  REQUIRE(std::abs(sum(full, num_partials) - of_full) <= 3e-7 * of_full);
}

TEST_CASE("sum_of_squares: one large element and many small ones are both counted", KERNEL_TAGS) {
  std::vector<float> x(1 << 17, 0.5f);  // in fp32, 2^26 + 0.25 is 2^26
  x[0] = 8192;
  REQUIRE(std::abs(sum(x, 1) - (67108864 + (x.size() - 1) * 0.25)) < 64);
  x[3] = NAN;
  REQUIRE(std::isnan(sum(x, 5)));
}

}  // namespace scatterlm::kernels::test

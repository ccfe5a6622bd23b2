#include "kernels/sum_parts.h"

#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {

namespace {

template <class T>
T narrow(float x) {
  if constexpr (std::is_same_v<T, float>)
    return x;
  else
    return to_bf16(x);
}

template <class T>
void check_sum(int num_parts, size_t count) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  std::vector<T> parts;
  for (size_t i = 0; i < static_cast<size_t>(num_parts) * count; ++i) parts.push_back(narrow<T>(normal(engine)));
  const Buffer<T> in(parts), out(count);
  sum_parts({in.data(), out.data(), std::is_same_v<T, float> ? DataType::kFp32 : DataType::kBf16, num_parts,
             static_cast<int64_t>(count)},
            nullptr);
  std::vector<T> expected;
  for (size_t i = 0; i < count; ++i) {
    float sum = to_float(parts[i]);
    for (size_t r = 1; r < static_cast<size_t>(num_parts); ++r) sum += to_float(parts[r * count + i]);
    expected.push_back(narrow<T>(sum));
  }
  REQUIRE(out.host() == expected);
}

}  // namespace

TEST_CASE("sum_parts: in the order of the parts, in fp32", KERNEL_TAGS) {
  const int num_parts = GENERATE(1, 2, 3, 8, 13);
  const auto count = GENERATE(size_t{0}, size_t{8}, size_t{2040}, size_t{4104});
  check_sum<float>(num_parts, count);
  check_sum<Bf16>(num_parts, count);
}

}  // namespace scatterlm::kernels::test

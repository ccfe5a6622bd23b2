#include "kernels/reduce_partials.h"

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
void check_sum(int64_t num_others, size_t count) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  const auto random = [&](size_t size) {
    std::vector<T> x;
    for (size_t i = 0; i < size; ++i) x.push_back(narrow<T>(normal(engine)));
    return x;
  };
  const auto others = random(static_cast<size_t>(num_others) * count), own = random(count);
  for (int64_t own_index = 0; own_index <= num_others; ++own_index) {
    auto order = others;
    order.insert(order.begin() + own_index * static_cast<int64_t>(count), own.begin(), own.end());
    std::vector<T> expected;
    for (size_t i = 0; i < count; ++i) {
      float sum = to_float(order[i]);
      for (size_t r = 1; r <= static_cast<size_t>(num_others); ++r) sum += to_float(order[r * count + i]);
      expected.push_back(narrow<T>(sum));
    }
    const Buffer<T> others_in(others), own_in(own), out(count);
    const auto type = std::is_same_v<T, float> ? DataType::kFloat32 : DataType::kBfloat16;
    for (T* to : {out.data(), own_in.data()})
      reduce_partials({others_in.data(), own_in.data(), to, type, num_others, own_index, static_cast<int64_t>(count)}, nullptr);
    REQUIRE(out.host() == expected);
    REQUIRE(own_in.host() == expected);
  }
}

}  // namespace

TEST_CASE("reduce_partials: in the order of the parts, in fp32", KERNEL_TAGS) {
  const int64_t num_others = GENERATE(1, 2, 7, 12);
  const auto count = GENERATE(size_t{0}, size_t{8}, size_t{2040}, size_t{4104});
  check_sum<float>(num_others, count);
  check_sum<Bf16>(num_others, count);
}

TEST_CASE("reduce_partials refuses what its threads cannot load", KERNEL_TAGS) {
  const Buffer<float> others(24), own(12), out(12);
  const auto sum = [&](int64_t count, const float* from) {
    reduce_partials({others.data(), from, out.data(), DataType::kFloat32, 2, 0, count}, nullptr);
  };
  REQUIRE_THROWS_WITH(sum(12, own.data()), ContainsSubstring("rows of others must be multiples of 8 elements, got 12"));
  REQUIRE_THROWS_WITH(sum(8, own.data() + 1), ContainsSubstring("own must be aligned to 16 bytes"));
}

}  // namespace scatterlm::kernels::test

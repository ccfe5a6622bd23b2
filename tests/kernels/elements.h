// What the tests of the optimisers' kernels share: arrays of either type, and how close an element must be to its formula.
#pragma once
#include "kernels/device/data_type.h"
#include "tests/catch.h"
#include "tests/kernels/cases.h"

namespace scatterlm::kernels::test {

template <class T>
constexpr DataType kTypeOf = std::is_same_v<T, float> ? DataType::kFloat32 : DataType::kBfloat16;

/// Numbers of this standard deviation; those of fp32 have more bits than bf16 holds.
template <class T>
std::vector<T> normal_numbers(size_t count, unsigned seed, float std) {
  std::vector<T> values;
  for (const Bf16 x : randn(count, seed, std)) {
    if constexpr (std::is_same_v<T, float>)
      values.push_back(to_float(x) * 1.001f);
    else
      values.push_back(x);
  }
  return values;
}

/// One rounding of the type, and what fp32 arithmetic adds where terms are as large as `size`.
template <class T>
void require_close(T actual, double expected, double size) {
  const double ulp = std::is_same_v<T, float> ? 1e-6 : 1.0 / 256;
  REQUIRE(std::abs(to_float(actual) - expected) <= ulp * std::abs(expected) + 1e-6 * size + 1e-7);
}

}  // namespace scatterlm::kernels::test

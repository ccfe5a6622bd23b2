// What the CPU loops of the ops share: threads over rows, sums in a fixed order, exp that vectorises. Bits depend neither on the
// vector width nor on the number of threads.
#pragma once
#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "lib/util/error.h"

namespace scatterlm::ops {

/// Sums of bfloat16 are kept in float.
template <class T>
struct Accumulate {
  using type = T;
};
template <>
struct Accumulate<c10::BFloat16> {
  using type = float;
};
template <class T>
using acc_t = typename Accumulate<T>::type;

/// Calls f with a value of the tensor's element type: `dispatch_float(x, "rms_norm", [&](auto zero) { using T = decltype(zero); ... })`.
template <class F>
void dispatch_float(const at::Tensor& x, const char* op, F&& f) {
  switch (x.scalar_type()) {
    case at::kFloat: return f(float{});
    case at::kDouble: return f(double{});
    case at::kBFloat16: return f(c10::BFloat16{});
    default: fail("[{}] dtype must be float32, float64 or bfloat16, got {}", op, c10::toString(x.scalar_type()));
  }
}

/// body(first, last) over the rows, in parallel where `width` elements per row make it worth a thread.
template <class F>
void for_rows(int64_t rows, int64_t width, F&& body) {
  constexpr int64_t kElementsPerThread = 8192;
  at::parallel_for(0, rows, std::max<int64_t>(1, kElementsPerThread / std::max<int64_t>(1, width)), std::forward<F>(body));
}

/// Rows in blocks of fixed borders: sums that are kept per block and added in order do not depend on the number of threads.
struct RowBlocks {
  static constexpr int64_t kCount = 16;
  int64_t rows;
  int64_t block_rows() const { return (rows + kCount - 1) / kCount; }

  /// body(block, first row, last row), blocks in parallel.
  template <class F>
  void run(int64_t width, F&& body) const {
    for_rows(kCount, block_rows() * width, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b)
        if (b * block_rows() < rows) body(b, b * block_rows(), std::min(rows, (b + 1) * block_rows()));
    });
  }
};

/// Sum of term(0..n-1) over 16 lanes, folded pairwise: one order at any vector width.
template <class A, class F>
inline A lane_sum(int64_t n, F&& term) {
  constexpr int64_t kLanes = 16;
  A lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += term(i + l);
  for (; i < n; ++i) lanes[i % kLanes] += term(i);
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  return lanes[0];
}

/// Largest of term(0..n-1), n > 0. A NaN may or may not win.
template <class A, class F>
inline A lane_max(int64_t n, F&& term) {
  constexpr int64_t kLanes = 16;
  A lanes[kLanes];
  std::fill(lanes, lanes + kLanes, term(0));
  const auto raise = [](A& highest, A value) { highest = value > highest ? value : highest; };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) raise(lanes[l], term(i + l));
  for (; i < n; ++i) raise(lanes[0], term(i));
  for (int64_t l = 1; l < kLanes; ++l) raise(lanes[0], lanes[l]);
  return lanes[0];
}

/// exp with 2 ulp in float: 2^n times a polynomial (Cephes) without branches or libm, so that loops vectorise. Results below 2e-38 are 0.
inline float exp_of(float x) {
  constexpr float kLow = -86.9f, kHigh = 88.72f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low mantissa bits
  const float clamped = x < kLow ? kLow : (x > kHigh ? kHigh : x);
  const float shifted = clamped * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const uint32_t half_exponent = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound) + 126;
  const float half_scale = std::bit_cast<float>(half_exponent << 23);  // 2^(n-1): 2^128 is no float
  const float result = p * half_scale * 2.0f;
  return x < kLow ? 0.0f : (x > kHigh ? std::numeric_limits<float>::infinity() : result);
}
inline double exp_of(double x) { return std::exp(x); }

template <class A>
inline A sigmoid_of(A x) {
  return A(1) / (A(1) + exp_of(-x));
}

}  // namespace scatterlm::ops

// Arithmetic of inner loops that compilers vectorise and whose bits do not depend on the vector width: sums in a fixed order,
// exp without branches or libm. Needs -ffp-contract=off.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

// A function with this is compiled for each vector width; the loader picks one. (It cannot before a sanitizer has started.)
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SCATTERLM_VECTOR_CLONES
#else
#define SCATTERLM_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

namespace scatterlm::ops {

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

/// exp in float: 2^n times a polynomial (Cephes), relative error below 0.7 * 2^-23, without branches or libm. Results below
/// 2e-38 are 0.
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

/// sigmoid(x) and 1 - sigmoid(x), each with its own relative precision.
template <class A>
struct Sigmoid {
  A value, complement;
};

template <class A>
inline Sigmoid<A> sigmoid_of(A x) {
  constexpr A kCap = sizeof(A) == 4 ? A(80) : A(700);  // keeps exp finite, so that the complement is no inf * 0
  const A e = exp_of(-x > kCap ? kCap : -x), value = A(1) / (A(1) + e);
  return {value, e * value};
}

}  // namespace scatterlm::ops

// The products of kernels/grouped_gemm.h as plain loops in fp64 over what the kernels read.
#pragma once
#include <algorithm>

#include "tests/kernels/cases.h"

namespace scatterlm::kernels::oracle {

using test::Bf16;
using test::Experts;
using test::to_float;

inline double round_bf16(double x) { return to_float(test::to_bf16(static_cast<float>(x))); }

/// [R, n]: a[row(m)] b[e]^T, or a b[e] of b [E, k, n] if transposed. Rows empty: m.
inline std::vector<double> grouped_gemm(const Experts& experts, const std::vector<Bf16>& a, const std::vector<int32_t>& rows,
                                        const std::vector<Bf16>& b, int n, int k, bool transposed) {
  std::vector<double> c(size_t(experts.num_rows()) * n);
  std::vector<float> weight(size_t(n) * k);
  for (int e = 0; e < experts.num_experts(); ++e) {
    if (experts.counts[e] == 0) continue;
    const Bf16* stored = b.data() + size_t(e) * n * k;
    for (int j = 0; j < n; ++j)
      for (int i = 0; i < k; ++i)
        weight[size_t(j) * k + i] = to_float(transposed ? stored[size_t(i) * n + j] : stored[size_t(j) * k + i]);
    for (int m = experts.offsets[e]; m < experts.offsets[e + 1]; ++m) {
      std::vector<float> row(k);
      for (int i = 0; i < k; ++i) row[i] = to_float(a[size_t(rows.empty() ? m : rows[m]) * k + i]);
      for (int j = 0; j < n; ++j) {
        double sum = 0;
        for (int i = 0; i < k; ++i) sum += double(row[i]) * weight[size_t(j) * k + i];
        c[size_t(m) * n + j] = sum;
      }
    }
  }
  return c;
}

/// bias [E, n], to every row of its expert.
inline void add_bias(const Experts& experts, std::vector<double>& c, const std::vector<Bf16>& bias, int n) {
  for (int e = 0; e < experts.num_experts(); ++e)
    for (int m = experts.offsets[e]; m < experts.offsets[e + 1]; ++m)
      for (int j = 0; j < n; ++j) c[size_t(m) * n + j] += to_float(bias[size_t(e) * n + j]);
}

/// [E, m, n]: sums over the rows of each expert of a^T b.
inline std::vector<double> wgrad(const Experts& experts, const std::vector<Bf16>& a, const std::vector<int32_t>& a_rows,
                                 const std::vector<Bf16>& b, const std::vector<int32_t>& b_rows, int m, int n) {
  std::vector<double> dw(size_t(experts.num_experts()) * m * n);
  for (int e = 0; e < experts.num_experts(); ++e)
    for (int row = experts.offsets[e]; row < experts.offsets[e + 1]; ++row) {
      const Bf16* left = a.data() + size_t(a_rows.empty() ? row : a_rows[row]) * m;
      const Bf16* right = b.data() + size_t(b_rows.empty() ? row : b_rows[row]) * n;
      for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) dw[(size_t(e) * m + i) * n + j] += double(to_float(left[i])) * to_float(right[j]);
    }
  return dw;
}

struct ValueSlope {
  double value, slope;
};

inline ValueSlope function(Activation kind, double x) {
  switch (kind) {
    case Activation::kSwiglu: {
      const double sigmoid = 1 / (1 + std::exp(-x));
      return {x * sigmoid, sigmoid * (1 + x * (1 - sigmoid))};
    }
    case Activation::kGeglu:
    case Activation::kGelu: {
      const double c = std::sqrt(2 / std::acos(-1.0)), t = std::tanh(c * (x + 0.044715 * x * x * x));
      return {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x)};
    }
    case Activation::kReglu: return {std::max(x, 0.0), x > 0 ? 1.0 : 0.0};
    case Activation::kRelu2: return {std::max(x, 0.0) * std::max(x, 0.0), 2 * std::max(x, 0.0)};
  }
  return {};
}

/// act [R, F] of h [R, 2F or F].
inline std::vector<double> activation(Activation kind, const std::vector<Bf16>& h, int width) {
  const int halves = is_gated(kind) ? 2 : 1;
  std::vector<double> act(h.size() / halves);
  for (size_t i = 0; i < act.size(); ++i) {
    const size_t at = i / width * width * halves + i % width;
    act[i] = function(kind, to_float(h[at])).value * (halves == 2 ? to_float(h[at + width]) : 1.0);
  }
  return act;
}

struct ActivationBwd {
  std::vector<double> dh, act_gated, dgates;  ///< dgates of rows
};

/// da [R, F] not gated, gates of rows.
inline ActivationBwd activation_bwd(Activation kind, const std::vector<Bf16>& h, const std::vector<double>& da,
                                    const std::vector<float>& gates_R, int width) {
  const int halves = is_gated(kind) ? 2 : 1;
  ActivationBwd out{std::vector<double>(h.size()), std::vector<double>(da.size()), std::vector<double>(gates_R.size())};
  for (size_t i = 0; i < da.size(); ++i) {
    const size_t row = i / width, at = row * width * halves + i % width;
    const auto f = function(kind, to_float(h[at]));
    const double up = halves == 2 ? to_float(h[at + width]) : 1.0, gate = gates_R[row];
    out.act_gated[i] = gate * f.value * up;
    out.dgates[row] += da[i] * f.value * up;
    out.dh[at] = gate * da[i] * up * f.slope;
    if (halves == 2) out.dh[at + width] = gate * da[i] * f.value;
  }
  return out;
}

}  // namespace scatterlm::kernels::oracle

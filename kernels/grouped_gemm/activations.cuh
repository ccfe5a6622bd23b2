// Activations as policies of the epilogues: value and slope in fp32, formulas as in lib/ops/activation.h.
#pragma once
#include "kernels/activation.h"
#include "kernels/device/ptx.cuh"

namespace scatterlm::kernels {

struct ValueSlope {
  float value, slope;
};

/// x sigmoid(x), with sigmoid(x) = 1/2 + 1/2 tanh(x / 2).
struct Silu {
  __device__ static float value(float x) { return evaluate(x).value; }
  __device__ static ValueSlope evaluate(float x) {
    const float sigmoid = fmaf(0.5f, tanh_approximate(0.5f * x), 0.5f);
    return {x * sigmoid, fmaf(x * sigmoid, 1.0f - sigmoid, sigmoid)};
  }
};

/// The tanh form of x Phi(x).
struct Gelu {
  __device__ static float value(float x) { return evaluate(x).value; }
  __device__ static ValueSlope evaluate(float x) {
    constexpr float kScale = 0.7978845608f, kCubic = 0.044715f;  // sqrt(2 / pi)
    const float square = x * x, t = tanh_approximate(kScale * x * fmaf(kCubic, square, 1.0f));
    const float half = fmaf(0.5f, t, 0.5f);
    return {x * half, fmaf(0.5f * x * (1.0f - t * t), kScale * fmaf(3.0f * kCubic, square, 1.0f), half)};
  }
};

struct Relu {
  __device__ static float value(float x) { return fmaxf(x, 0.0f); }
  __device__ static ValueSlope evaluate(float x) { return {fmaxf(x, 0.0f), x > 0.0f ? 1.0f : 0.0f}; }
};

struct SquaredRelu {
  __device__ static float value(float x) {
    const float positive = fmaxf(x, 0.0f);
    return positive * positive;
  }
  __device__ static ValueSlope evaluate(float x) {
    const float positive = fmaxf(x, 0.0f);
    return {positive * positive, 2.0f * positive};
  }
};

/// a = F(gate) * up; the pre-activation has a gate and an up half.
template <class F>
struct Gated {
  using Function = F;
  static constexpr int kHalves = 2;
};

/// a = F(h).
template <class F>
struct Plain {
  using Function = F;
  static constexpr int kHalves = 1;
};

/// Two neighbouring columns of A = activation(H); `up` is unused if not gated.
template <class Policy>
__device__ __forceinline__ uint32_t activate_pair(uint32_t h, uint32_t up) {
  using F = typename Policy::Function;
  float low = F::value(low_bf16(h)), high = F::value(high_bf16(h));
  if constexpr (Policy::kHalves == 2) {
    low *= low_bf16(up);
    high *= high_bf16(up);
  }
  return pack_bf16(low, high);
}

/// Two neighbouring columns of backward, from dA' of a row with gate s: dH over h (and up), <dA', A> added to dgate. Returns A'
/// = s A.
template <class Policy>
__device__ __forceinline__ uint32_t differentiate_pair(uint32_t da, float gate, uint32_t& h, uint32_t& up, float& dgate) {
  const auto half_of = [](uint32_t packed, int x) { return x ? high_bf16(packed) : low_bf16(packed); };
  float a[2], dh[2], dup[2];
#pragma unroll
  for (int x = 0; x < 2; ++x) {
    const float da_x = half_of(da, x);
    const auto f = Policy::Function::evaluate(half_of(h, x));
    if constexpr (Policy::kHalves == 2) {
      const float up_x = half_of(up, x);
      a[x] = f.value * up_x;
      dh[x] = gate * da_x * up_x * f.slope;
      dup[x] = gate * da_x * f.value;
    } else {
      a[x] = f.value;
      dh[x] = gate * da_x * f.slope;
    }
    dgate = fmaf(da_x, a[x], dgate);
  }
  h = pack_bf16(dh[0], dh[1]);
  if constexpr (Policy::kHalves == 2) up = pack_bf16(dup[0], dup[1]);
  return pack_bf16(gate * a[0], gate * a[1]);
}

/// visit(policy) for the activation.
template <class Visit>
void with_activation(Activation activation, Visit&& visit) {
  switch (activation) {
    case Activation::kSwiglu: return visit(Gated<Silu>{});
    case Activation::kGeglu: return visit(Gated<Gelu>{});
    case Activation::kReglu: return visit(Gated<Relu>{});
    case Activation::kRelu2: return visit(Plain<SquaredRelu>{});
    case Activation::kGelu: return visit(Plain<Gelu>{});
  }
}

}  // namespace scatterlm::kernels

// How a sum over rows becomes a gradient.
#pragma once
#include "kernels/device/ptx.cuh"
#include "kernels/grouped_gemm.h"

namespace scatterlm::kernels {

/// Elements `at`, even, and `at` + 1 of `gradient`.
__device__ __forceinline__ void update_pair(void* gradient, DataType type, GradientUpdate update, int64_t at, float x,
                                            float y) {
  const bool add = update == GradientUpdate::kAdd;
  if (type == DataType::kFloat32) {
    auto* to = static_cast<float2*>(gradient) + at / 2;
    *to = add ? float2{to->x + x, to->y + y} : float2{x, y};
  } else {
    auto* to = static_cast<uint32_t*>(gradient) + at / 2;
    *to = add ? pack_bf16(low_bf16(*to) + x, high_bf16(*to) + y) : pack_bf16(x, y);
  }
}

}  // namespace scatterlm::kernels

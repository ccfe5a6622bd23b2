// How a sum over rows becomes a gradient.
#pragma once
#include "kernels/device/ptx.cuh"
#include "kernels/grouped_gemm.h"

namespace scatterlm::kernels {

/// Elements `at`, even, and `at` + 1 of `gradient`.
__device__ __forceinline__ float2 load_pair(const void* gradient, DataType type, int64_t at) {
  if (type == DataType::kFloat32) return static_cast<const float2*>(gradient)[at / 2];
  const uint32_t packed = static_cast<const uint32_t*>(gradient)[at / 2];
  return {low_bf16(packed), high_bf16(packed)};
}
__device__ __forceinline__ void store_pair(void* gradient, DataType type, int64_t at, float x, float y) {
  if (type == DataType::kFloat32)
    static_cast<float2*>(gradient)[at / 2] = {x, y};
  else
    static_cast<uint32_t*>(gradient)[at / 2] = pack_bf16(x, y);
}
__device__ __forceinline__ void update_pair(void* gradient, DataType type, GradientUpdate update, int64_t at, float x,
                                            float y) {
  if (update == GradientUpdate::kAdd) {
    const float2 before = load_pair(gradient, type, at);
    x += before.x;
    y += before.y;
  }
  store_pair(gradient, type, at, x, y);
}

}  // namespace scatterlm::kernels

// Rotary position embedding in the rotate-half form: element i of a head pairs with i + P/2.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/data_type.h"

namespace scatterlm::kernels {

/// With (c, s) = (cos, sin)[position, i] and the pair (low, high) = x[i], x[i + P/2]:
///   y[i] = low c - high s      y[i + P/2] = high c + low s
struct RopeArgs {
  const void* x;                              ///< [B, S, H, P] with the strides below; heads aligned to 16 bytes
  const float* cos;                           ///< [S, P/2]
  const float* sin;                           ///< [S, P/2]
  void* y;                                    ///< [B, S, H, P] contiguous
  DataType type;                              ///< of x and y
  bool back;                                  ///< rotates back, by -sin: the gradient
  int64_t batch, positions, heads, head_dim;  ///< B, S, H, P; P a multiple of 16
  int64_t stride_b, stride_s, stride_h;       ///< of x, in elements
};
void rope(const RopeArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels

// Rotary position embedding in the rotate-half form: element i of a head pairs with i + P/2.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device/data_type.h"

namespace scatterlm::kernels {

/// With (c, s) = (cos, sin)[position, i] and the pair (low, high) = x[i], x[i + P/2]:
///   y[i] = low c - high s      y[i + P/2] = high c + low s
/// Heads are numbered by two dimensions, so that their order in y need not be that in x.
struct RopeArgs {
  const void* x;                                   ///< [B, S, G, H, P] with the strides below; heads aligned to 16 bytes
  const float* cos;                                ///< [S, P/2]
  const float* sin;                                ///< [S, P/2]
  void* y;                                         ///< [B, S, G, H, P] contiguous
  DataType type;                                   ///< of x and y
  bool back;                                       ///< rotates back, by -sin: the gradient
  int64_t batch, positions;                        ///< B, S
  int64_t groups, heads;                           ///< G, H
  int64_t head_dim;                                ///< P, a multiple of 16
  int64_t stride_b, stride_s, stride_g, stride_h;  ///< of x, in elements
};
void rope(const RopeArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels

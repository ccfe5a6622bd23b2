// AdamW: Loshchilov and Hutter, arXiv 1711.05101. Of weights w, gradients g and moments m and v, in update number t:
//
//   g = grads / grad_scale
//   m = beta1 m + (1 - beta1) g
//   v = beta2 v + (1 - beta2) g^2
//   w = w - lr weight_decay w - lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)
//
// computed in fp32; what is bf16 is rounded to nearest when stored.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device/data_type.h"

namespace scatterlm::kernels {

/// Arrays start at multiples of 16 bytes and have any length.
struct AdamwArgs {
  const void* grads;  ///< [count]
  DataType grads_type;
  void* weights;     ///< [count], as the moments of state_type
  void* exp_avg;     ///< [count] m
  void* exp_avg_sq;  ///< [count] v
  DataType state_type;
  void* params;  ///< bf16 [count]: the new weights, rounded; nullptr: not wanted
  int64_t count;
  int64_t num_decayed;  ///< the first so many elements have weight decay
  double lr, beta1, beta2, eps, weight_decay;
  const float* grad_scale;  ///< [1]
  const float* skip;        ///< [1]: if 1, nothing changes
  const float* updates;     ///< [1] t
};
void adamw(const AdamwArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels

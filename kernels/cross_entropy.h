// Cross-entropy of rows of logits, with its gradient in the same launch.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device/data_type.h"

namespace scatterlm::kernels {

/// For every token t: loss[t] = log sum exp(logits[t]) - logits[t, target[t]], dlogits[t] = softmax(logits[t]) - one hot.
struct CrossEntropyArgs {
  const float* logits;    ///< [T, V]; rows aligned to 16 bytes
  const int64_t* target;  ///< [T]; what is not in 0..V-1 makes the loss NaN
  float* loss;            ///< [T]
  void* dlogits;          ///< [T, V] of dlogits_type, may be the logits if fp32; nullptr: not wanted
  DataType dlogits_type;
  int64_t num_tokens;  ///< T
  int64_t vocab;       ///< V, a multiple of 8
  int64_t num_sms;     ///< of the GPU
};
void cross_entropy(const CrossEntropyArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels

// Initial weights: numbers of kernels/device/philox.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace scatterlm::kernels {

/// out[i] = normal(stream, first + i, scale).
struct FillNormalArgs {
  float* out;
  int64_t count;
  uint64_t stream;  ///< of numbers
  uint64_t first;
  float scale;  ///< standard deviation * kInverseSigma
};
void fill_normal(const FillNormalArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels

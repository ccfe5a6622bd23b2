// Sum of squares of an array, in parts: the same bits in every run.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device/data_type.h"

namespace scatterlm::kernels {

/// The sum of partials is that of x[i]^2. Squares are fp32, sums of a thread fp64.
struct SumOfSquaresArgs {
  const void* x;  ///< [count], at a multiple of 16 bytes
  DataType type;
  int64_t count;
  float* partials;  ///< [num_partials], one of each block
  int64_t num_partials;
};
void sum_of_squares(const SumOfSquaresArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels

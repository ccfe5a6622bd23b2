// The sum over ranks of a reduce-scatter, once every rank's part has arrived.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/data_type.h"

namespace scatterlm::kernels {

/// out[i] = parts[0][i] + parts[1][i] + ..., in this order and in fp32. All of one type, at multiples of 16 bytes.
struct SumPartsArgs {
  const void* parts;  ///< [num_parts, count]
  void* out;          ///< [count]
  DataType type;
  int num_parts;
  int64_t count;  ///< a multiple of eight
};
void sum_parts(const SumPartsArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels

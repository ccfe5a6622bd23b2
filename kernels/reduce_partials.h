// The sum over ranks of a reduce-scatter, once the others' parts have arrived.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device/data_type.h"

namespace scatterlm::kernels {

/// out = the sum of num_others + 1 parts in their order and in fp32: others[0], ..., others[own_index - 1], own,
/// others[own_index], ... All of one type, at multiples of 16 bytes; out may be own.
struct ReducePartialsArgs {
  const void* others;  ///< [num_others, count]
  const void* own;     ///< [count]
  void* out;           ///< [count]
  DataType type;
  int64_t num_others;
  int64_t own_index;  ///< 0 to num_others
  int64_t count;      ///< a multiple of eight
};
void reduce_partials(const ReducePartialsArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels

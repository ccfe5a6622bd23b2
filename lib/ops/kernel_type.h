// Element types of tensors as kernels name them; only *_cuda.cpp files include it.
#pragma once
#include <ATen/core/Tensor.h>

#include "kernels/device/data_type.h"

namespace scatterlm::ops {

inline bool is_float_or_bfloat16(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
}

/// Of a tensor that is float32 or bfloat16.
inline kernels::DataType kernel_type(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat ? kernels::DataType::kFloat32 : kernels::DataType::kBfloat16;
}

/// Whether the first element is where 16 bytes can be loaded at once.
inline bool is_aligned(const at::Tensor& x) { return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0; }

}  // namespace scatterlm::ops

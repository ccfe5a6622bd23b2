#include <c10/core/DeviceGuard.h>

#include "kernels/reduce_partials.h"
#include "lib/ops/device.h"
#include "lib/ops/reduce_partials.h"

bool scatterlm::ops::cuda::reduce_partials(const at::Tensor& others, const at::Tensor& own, int64_t own_index,
                                           const at::Tensor& out) {
  const bool bf16 = own.scalar_type() == at::kBFloat16, fp32 = own.scalar_type() == at::kFloat;
  if (!(bf16 || fp32) || !kernels_can_load(others) || !kernels_can_load(own) || !kernels_can_load(out) || own.numel() % 8 != 0)
    return false;
  const c10::DeviceGuard guard(own.device());
  kernels::reduce_partials({.others = others.const_data_ptr(),
                            .own = own.const_data_ptr(),
                            .out = out.mutable_data_ptr(),
                            .type = bf16 ? kernels::DataType::kBfloat16 : kernels::DataType::kFloat32,
                            .num_others = others.size(0),
                            .own_index = own_index,
                            .count = own.numel()},
                           current_stream(own));
  return true;
}

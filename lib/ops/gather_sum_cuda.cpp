#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "kernels/gather_sum.h"
#include "lib/ops/device.h"
#include "lib/ops/gather_sum.h"

std::optional<at::Tensor> scatterlm::ops::cuda::gather_sum(const at::Tensor& y_RN, const at::Tensor& inverse_R,
                                                           const TokenSlots& slots, const std::optional<at::Tensor>& gates) {
  if (!kernels_can_load(y_RN) || y_RN.scalar_type() != at::kBFloat16) return {};
  const c10::DeviceGuard guard(y_RN.device());
  const int64_t tokens = slots.num_tokens(inverse_R.size(0));
  auto out = at::empty({tokens, y_RN.size(1)}, y_RN.options());
  kernels::gather_sum({.y = y_RN.const_data_ptr(),
                       .inverse_R = inverse_R.const_data_ptr<int32_t>(),
                       .gates = gates ? gates->const_data_ptr<float>() : nullptr,
                       .out = out.mutable_data_ptr(),
                       .num_tokens = tokens,
                       .top_k = slots.top_k,
                       .n = y_RN.size(1),
                       .token_offsets_T1 = slots.offsets_T1.defined() ? slots.offsets_T1.const_data_ptr<int32_t>() : nullptr},
                      current_stream(y_RN));
  return out;
}

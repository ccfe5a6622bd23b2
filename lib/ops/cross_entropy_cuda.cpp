#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "kernels/cross_entropy.h"
#include "lib/ops/cross_entropy.h"
#include "lib/ops/device.h"

namespace scatterlm::ops {
namespace {

bool kernel_takes(const at::Tensor& logits_TV, at::ScalarType grad_dtype) {
  return kernels_can_load(logits_TV) && logits_TV.scalar_type() == at::kFloat && logits_TV.size(1) % 8 == 0 &&
         (grad_dtype == at::kFloat || grad_dtype == at::kBFloat16);
}

}  // namespace

std::optional<at::Tensor> cuda::softmax_rows(const at::Tensor& logits_TV, const at::Tensor& target_T,
                                             const at::Tensor& losses_T, std::optional<at::ScalarType> grad_dtype) {
  if (!kernel_takes(logits_TV, grad_dtype.value_or(at::kFloat))) return {};
  const c10::DeviceGuard guard(logits_TV.device());
  const bool in_place = grad_dtype == logits_TV.scalar_type();
  const auto dlogits_TV = !grad_dtype ? at::Tensor()
                          : in_place  ? logits_TV
                                      : at::empty(logits_TV.sizes(), logits_TV.options().dtype(*grad_dtype));
  const bool fp32 = grad_dtype == at::kFloat;
  kernels::cross_entropy({.logits = logits_TV.const_data_ptr<float>(),
                          .target = target_T.const_data_ptr<int64_t>(),
                          .loss = losses_T.mutable_data_ptr<float>(),
                          .dlogits = grad_dtype ? dlogits_TV.mutable_data_ptr() : nullptr,
                          .dlogits_type = fp32 ? kernels::DataType::kFloat32 : kernels::DataType::kBfloat16,
                          .num_tokens = logits_TV.size(0),
                          .vocab = logits_TV.size(1),
                          .num_sms = num_sms(logits_TV)},
                         current_stream(logits_TV));
  return dlogits_TV;
}

}  // namespace scatterlm::ops

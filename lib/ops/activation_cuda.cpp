#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "kernels/activation_rows.h"
#include "lib/ops/activation.h"
#include "lib/ops/device.h"

namespace scatterlm::ops {
namespace {

/// The kernels' approximate tanh is exact enough for bf16 only.
bool kernel_takes(const at::Tensor& x, int64_t width) {
  return kernels_can_load(x) && x.scalar_type() == at::kBFloat16 && width % 8 == 0;
}

kernels::ActivationRowsArgs kernel_args(const at::Tensor& h, Activation kind) {
  return {.activation = kind, .h = h.const_data_ptr(), .num_rows = h.size(0), .width = activation_width(h, kind)};
}

}  // namespace

std::optional<at::Tensor> cuda::activation_fwd(const at::Tensor& h, Activation kind) {
  const int64_t width = activation_width(h, kind);
  if (!kernel_takes(h, width)) return {};
  const c10::DeviceGuard guard(h.device());
  auto a = at::empty({h.size(0), width}, h.options());
  kernels::activation_rows_fwd(kernel_args(h, kind), a.mutable_data_ptr(), current_stream(h));
  return a;
}

std::optional<at::Tensor> cuda::activation_bwd(const at::Tensor& da, const at::Tensor& h, Activation kind) {
  if (!kernel_takes(h, da.size(1)) || !kernel_takes(da, da.size(1))) return {};
  const c10::DeviceGuard guard(h.device());
  auto dh = at::empty_like(h);
  kernels::activation_rows_bwd(kernel_args(h, kind), da.const_data_ptr(), dh.mutable_data_ptr(), current_stream(h));
  return dh;
}

}  // namespace scatterlm::ops

#include "lib/ops/muon.h"

#include <c10/core/DeviceGuard.h>

#include "kernels/muon.h"
#include "lib/ops/device.h"
#include "lib/ops/kernel_type.h"

namespace scatterlm::ops {

bool cuda::muon_momentum(const MuonMomentum& t, const at::Tensor& grad_scale, const at::Tensor& skip) {
  for (const auto* x : {&t.grads, &t.momentum, &t.updates})
    if (!has_kernels(*x) || !is_float_or_bfloat16(*x) || !is_aligned(*x)) return false;
  if (t.updates.scalar_type() != at::kBFloat16) return false;
  const c10::DeviceGuard guard(t.momentum.device());
  kernels::muon_momentum({.grads = t.grads.const_data_ptr(),
                          .grads_type = kernel_type(t.grads),
                          .momentum = t.momentum.mutable_data_ptr(),
                          .state_type = kernel_type(t.momentum),
                          .updates = t.updates.mutable_data_ptr(),
                          .count = t.momentum.numel(),
                          .beta = t.beta,
                          .grad_scale = grad_scale.const_data_ptr<float>(),
                          .skip = skip.const_data_ptr<float>()},
                         current_stream(t.momentum));
  return true;
}

bool cuda::muon_apply(const MuonApply& t, const at::Tensor& skip) {
  for (const auto* x : {&t.updates, &t.weights, &t.params})
    if (!has_kernels(*x) || !is_float_or_bfloat16(*x) || !is_aligned(*x)) return false;
  const bool copies = t.params.const_data_ptr() != t.weights.const_data_ptr();
  if (t.updates.scalar_type() != at::kBFloat16 || (copies && t.params.scalar_type() != at::kBFloat16)) return false;
  const c10::DeviceGuard guard(t.weights.device());
  kernels::muon_apply({.updates = t.updates.const_data_ptr(),
                       .weights = t.weights.mutable_data_ptr(),
                       .state_type = kernel_type(t.weights),
                       .params = copies ? t.params.mutable_data_ptr() : nullptr,
                       .count = t.weights.numel(),
                       .lr = t.lr,
                       .weight_decay = t.weight_decay,
                       .skip = skip.const_data_ptr<float>()},
                      current_stream(t.weights));
  return true;
}

}  // namespace scatterlm::ops

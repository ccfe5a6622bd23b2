#include <c10/core/DeviceGuard.h>

#include "kernels/adamw.h"
#include "lib/ops/adamw.h"
#include "lib/ops/device.h"
#include "lib/ops/kernel_type.h"

bool scatterlm::ops::cuda::adamw(const AdamWTensors& t, const AdamWStep& s) {
  for (const auto* x : {&t.weights, &t.exp_avg, &t.exp_avg_sq, &t.grads, &t.params})
    if (!has_kernels(*x) || !is_float_or_bfloat16(*x) || !is_aligned(*x)) return false;
  const bool copies = t.params.const_data_ptr() != t.weights.const_data_ptr();
  if (copies && t.params.scalar_type() != at::kBFloat16) return false;
  const c10::DeviceGuard guard(t.weights.device());
  kernels::adamw({.grads = t.grads.const_data_ptr(),
                  .grads_type = kernel_type(t.grads),
                  .weights = t.weights.mutable_data_ptr(),
                  .exp_avg = t.exp_avg.mutable_data_ptr(),
                  .exp_avg_sq = t.exp_avg_sq.mutable_data_ptr(),
                  .state_type = kernel_type(t.weights),
                  .params = copies ? t.params.mutable_data_ptr() : nullptr,
                  .count = t.weights.numel(),
                  .num_decayed = t.num_decayed,
                  .lr = s.lr,
                  .beta1 = s.beta1,
                  .beta2 = s.beta2,
                  .eps = s.eps,
                  .weight_decay = s.weight_decay,
                  .grad_scale = s.grad_scale.const_data_ptr<float>(),
                  .skip = s.skip.const_data_ptr<float>(),
                  .updates = s.updates.const_data_ptr<float>()},
                 current_stream(t.weights));
  return true;
}

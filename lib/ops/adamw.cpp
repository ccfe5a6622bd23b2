#include "lib/ops/adamw.h"

#include <ATen/ATen.h>

#include "lib/ops/shape.h"
#include "lib/util/error.h"

namespace scatterlm::ops {

void ref::adamw(const AdamWTensors& t, const AdamWStep& s) {
  const auto update = [&](int64_t begin, int64_t end, double weight_decay) {
    if (begin == end) return;
    const auto part = [&](const at::Tensor& x) { return x.slice(0, begin, end); };
    at::_fused_adamw_({part(t.weights)}, {part(t.grads).to(t.weights.scalar_type())}, {part(t.exp_avg)}, {part(t.exp_avg_sq)},
                      {}, {s.updates}, s.lr, s.beta1, s.beta2, weight_decay, s.eps, /*amsgrad=*/false, /*maximize=*/false,
                      s.grad_scale, s.skip);
  };
  update(0, t.num_decayed, s.weight_decay);
  update(t.num_decayed, t.weights.numel(), 0);
  if (t.params.data_ptr() != t.weights.data_ptr()) t.params.copy_(t.weights);
}

void adamw(const AdamWTensors& t, const AdamWStep& s) {
  for (const auto* x : {&t.weights, &t.exp_avg, &t.exp_avg_sq, &t.grads, &t.params}) {
    if (x->dim() != 1 || x->sizes() != t.weights.sizes() || !x->is_contiguous())
      fail("[adamw] weights, moments, grads and params must be contiguous vectors of one length, got {} and {}",
           shape_of(t.weights), shape_of(*x));
  }
  if (t.exp_avg.scalar_type() != t.weights.scalar_type() || t.exp_avg_sq.scalar_type() != t.weights.scalar_type())
    fail("[adamw] moments must be {} as the weights, got {} and {}", c10::toString(t.weights.scalar_type()),
         c10::toString(t.exp_avg.scalar_type()), c10::toString(t.exp_avg_sq.scalar_type()));
  if (t.num_decayed < 0 || t.num_decayed > t.weights.numel())
    fail("[adamw] num_decayed must be in 0..{}, got {}", t.weights.numel(), t.num_decayed);
  if (!cuda::adamw(t, s)) ref::adamw(t, s);
}

}  // namespace scatterlm::ops

// AdamW: Loshchilov and Hutter, arXiv 1711.05101; the formula is in kernels/adamw.h.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace scatterlm::ops {

/// What one call updates: contiguous vectors of the same n elements.
struct AdamWTensors {
  at::Tensor weights;              ///< [n] float32 or bfloat16
  at::Tensor exp_avg, exp_avg_sq;  ///< [n] first and second moment, of the weights' dtype
  at::Tensor grads;                ///< [n] of any dtype; may be divided by grad_scale in place
  at::Tensor params;               ///< [n]: gets the new weights in its own dtype; the weights themselves or a copy of them
  int64_t num_decayed;             ///< the first so many elements have weight decay
};

/// What all elements of the model have in common.
struct AdamWStep {
  double lr, beta1, beta2, eps, weight_decay;
  at::Tensor grad_scale;  ///< [1] float32: gradients are divided by it
  at::Tensor skip;        ///< [1] float32: if 1, nothing changes
  at::Tensor updates;     ///< [] float32: number of updates, with this one
};

/// One update in place. Arithmetic is in float32; bfloat16 results are rounded to nearest. Does not wait for the device.
/// Throws "[adamw] ..." if lengths or dtypes do not fit.
void adamw(const AdamWTensors& tensors, const AdamWStep& step);

namespace cuda {
/// Returns false where no kernel takes these tensors.
bool adamw(const AdamWTensors& tensors, const AdamWStep& step);
}  // namespace cuda

namespace ref {
/// By at::_fused_adamw_, which wants gradients of the weights' dtype.
void adamw(const AdamWTensors& tensors, const AdamWStep& step);
}  // namespace ref

}  // namespace scatterlm::ops

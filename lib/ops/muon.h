// The two passes of Muon over elements, before and after its matrices are orthogonalised; the formulas are in kernels/muon.h,
// the whole of it in lib/optim/muon.h.
#pragma once
#include <ATen/core/Tensor.h>

namespace scatterlm::ops {

/// Contiguous vectors of the same n elements.
struct MuonMomentum {
  at::Tensor grads;     ///< [n] of any dtype
  at::Tensor momentum;  ///< [n] float32 or bfloat16: changed
  at::Tensor updates;   ///< [n] of any dtype: gets the Nesterov momentum of the new state
  double beta;
};

/// Contiguous vectors of the same n elements.
struct MuonApply {
  at::Tensor updates;  ///< [n] of any dtype
  at::Tensor weights;  ///< [n] float32 or bfloat16: changed
  at::Tensor params;   ///< [n]: gets the new weights in its own dtype; the weights themselves or a copy of them
  double lr, weight_decay;
};

/// Gradients are divided by `grad_scale` [1] float32. Where `skip` [1] float32 is 1 the momentum stays, and what updates hold
/// is for nobody. Arithmetic is in float32; bfloat16 results are rounded to nearest. Does not wait for the device. Throws
/// "[muon] ..." if lengths do not fit.
void muon_momentum(const MuonMomentum& tensors, const at::Tensor& grad_scale, const at::Tensor& skip);
/// The same of weights; nothing changes where `skip` is 1.
void muon_apply(const MuonApply& tensors, const at::Tensor& skip);

namespace cuda {
/// Return false where no kernel takes these tensors.
bool muon_momentum(const MuonMomentum& tensors, const at::Tensor& grad_scale, const at::Tensor& skip);
bool muon_apply(const MuonApply& tensors, const at::Tensor& skip);
}  // namespace cuda

namespace ref {
void muon_momentum(const MuonMomentum& tensors, const at::Tensor& grad_scale, const at::Tensor& skip);
void muon_apply(const MuonApply& tensors, const at::Tensor& skip);
}  // namespace ref

}  // namespace scatterlm::ops

// Pointwise activations of MLPs: SwiGLU, GeGLU, ReGLU (gated), squared ReLU and GELU. GELU is its tanh form everywhere.
// Sources: Shazeer, arXiv 2002.05202 (gated forms); So et al., arXiv 2109.08668 (squared ReLU).
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "lib/config/enums.h"

namespace scatterlm::ops {

/// Applies an activation to the last dimension of h and returns a tensor of the same dtype and device; differentiable.
/// A gated kind takes h [..., 2F], gate half first, and returns f(gate) * up [..., F]; the others take [..., F] and return
/// [..., F]. Throws "[activation] ..." if a gated h has an odd last dimension.
at::Tensor activation(const at::Tensor& h, Activation kind);

/// Forward of activation() outside of autograd, for ops that write their own backward. h [R, 2F or F] must be contiguous.
at::Tensor activation_fwd(const at::Tensor& h, Activation kind);
/// Backward of activation() outside of autograd: da [R, F] and h [R, 2F or F], both contiguous, give the gradient of h.
at::Tensor activation_bwd(const at::Tensor& da, const at::Tensor& h, Activation kind);

/// Gradients of a = activation(h) followed by a gated sum, o = sum_r gates[r] W a[r].
struct GatedActivationGrad {
  at::Tensor dh;       ///< [R, 2F or F]: gradient of h for da = gates * da'
  at::Tensor a_gated;  ///< [R, F]: gates * a, recomputed
  at::Tensor dgates;   ///< [R]: <da', a>
};
/// Computes these gradients from the ungated da' = dO W [R, F], h [R, 2F or F] and gates_R [R] (float32; float64 with a
/// float64 h). Not an autograd function.
GatedActivationGrad gated_activation_bwd(const at::Tensor& da_ungated, const at::Tensor& h, const at::Tensor& gates_R,
                                         Activation kind);

/// F, the number of columns that the activation of h [..., 2F or F] has.
inline int64_t activation_width(const at::Tensor& h, Activation kind) { return is_gated(kind) ? h.size(-1) / 2 : h.size(-1); }

// Backends, of which activation.cpp picks one.
namespace ref {  // LibTorch's own operations, on any device
at::Tensor activation(const at::Tensor& h, Activation kind);
at::Tensor activation_bwd(const at::Tensor& da, const at::Tensor& h, Activation kind);
}  // namespace ref
namespace cpu {
at::Tensor activation_fwd(const at::Tensor& h, Activation kind);
at::Tensor activation_bwd(const at::Tensor& da, const at::Tensor& h, Activation kind);
GatedActivationGrad gated_activation_bwd(const at::Tensor& da_ungated, const at::Tensor& h, const at::Tensor& gates_R,
                                         Activation kind);
}  // namespace cpu
namespace cuda {  // nothing where no kernel takes these tensors
std::optional<at::Tensor> activation_fwd(const at::Tensor& h, Activation kind);
std::optional<at::Tensor> activation_bwd(const at::Tensor& da, const at::Tensor& h, Activation kind);
}  // namespace cuda

}  // namespace scatterlm::ops

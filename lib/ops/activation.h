// Pointwise activations of MLPs.
#pragma once
#include <ATen/core/Tensor.h>

#include "lib/config/enums.h"

namespace scatterlm::ops {

/// h [..., 2F] (gated: gate first, f(gate) * up) or [..., F] -> [..., F]. GELU is the tanh form. Shazeer, arXiv 2002.05202; So
/// et al., 2109.08668 (relu2).
at::Tensor activation(const at::Tensor& h, Activation kind);

/// The parts of `activation` for ops with their own backward: h [R, 2F or F] contiguous, outside of autograd.
at::Tensor activation_fwd(const at::Tensor& h, Activation kind);
/// da [R, F] -> gradient of h.
at::Tensor activation_bwd(const at::Tensor& da, const at::Tensor& h, Activation kind);

/// Backward of a = activation(h) followed by a gated sum, o = sum_r gates[r] W a[r], from the ungated da' = dO W.
struct GatedActivationGrad {
  at::Tensor dh;       ///< [R, 2F or F]: gradient of h for da = gates * da'
  at::Tensor a_gated;  ///< [R, F]: gates * a, recomputed
  at::Tensor dgates;   ///< [R]: <da', a>
};
GatedActivationGrad gated_activation_bwd(const at::Tensor& da_ungated, const at::Tensor& h, const at::Tensor& gates_R,
                                         Activation kind);

namespace ref {
at::Tensor activation(const at::Tensor& h, Activation kind);
}

}  // namespace scatterlm::ops

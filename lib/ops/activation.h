// Pointwise activations of MLPs.
#pragma once
#include <ATen/core/Tensor.h>

namespace scatterlm::ops {

enum class ActivationKind { kSwiglu, kGeglu, kReglu, kRelu2, kGelu };

/// Two halves in the last dimension of the pre-activation, gate first.
constexpr bool is_gated(ActivationKind kind) {
  return kind == ActivationKind::kSwiglu || kind == ActivationKind::kGeglu || kind == ActivationKind::kReglu;
}

/// h [..., 2F] (gated: f(gate) * up) or [..., F] -> [..., F]. GELU is the tanh form. Shazeer, arXiv 2002.05202; So et al., 2109.08668 (relu2).
at::Tensor activation(const at::Tensor& h, ActivationKind kind);

}  // namespace scatterlm::ops

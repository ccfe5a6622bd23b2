#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "lib/ops/activation.h"
#include "lib/ops/routing.h"

namespace scatterlm::ops {

/// Biases of the experts, in the type of the weights.
struct MoeMlpBias {
  std::optional<at::Tensor> b1;  ///< [E, 2F] (not gated: [E, F])
  std::optional<at::Tensor> b2;  ///< [E, D]
};

/// O[t] = sum over the slots i of t of gates[i] (W2[e] act(W1[e] x[t] + b1[e]) + b2[e]), e = expert of slot i.
/// x_TD, w1 [E, 2F, D] (gate rows first; not gated: [E, F, D]), w2 [E, D, F], gates fp32 [T, K] or, after token rounding, [R]
/// -> [T, D].
/// Backward keeps x and the pre-activation only (Guo et al., arXiv 2512.14080, section 3): dgates through <dA', A>.
at::Tensor moe_mlp(const at::Tensor& x_TD, const at::Tensor& w1, const at::Tensor& w2, const at::Tensor& gates,
                   const Routing& routing, Activation kind, const MoeMlpBias& bias = {});

}  // namespace scatterlm::ops

#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "lib/ops/activation.h"
#include "lib/ops/routing.h"

namespace scatterlm::ops {

/// Biases of the experts, in the dtype of the weights; either may be missing.
struct MoeMlpBias {
  std::optional<at::Tensor> b1;  ///< [E, 2F] (not gated: [E, F])
  std::optional<at::Tensor> b2;  ///< [E, D]
};

/// The MLP of a Mixture-of-Experts layer: O[t] = sum over the slots i of token t of gates[i] (W2[e] act(W1[e] x[t] + b1[e]) +
/// b2[e]), where e is the expert of slot i.
/// x_TD [T, D], w1 [E, 2F, D] with the gate rows first ([E, F, D] if the activation is not gated) and w2 [E, D, F] have one
/// dtype; gates are [T, K], or [R] after token rounding, in float32 (float64 for float64). Returns [T, D] in x's dtype,
/// differentiable in x, weights, gates and biases. Backward keeps x and the pre-activation only and gets the gradient of the
/// gates as <dA', A>. Source: Guo et al., "SonicMoE", arXiv 2512.14080, section 3.
/// Throws "[moe_mlp] ..." if shapes, dtypes or devices do not fit.
at::Tensor moe_mlp(const at::Tensor& x_TD, const at::Tensor& w1, const at::Tensor& w2, const at::Tensor& gates,
                   const Routing& routing, Activation kind, const MoeMlpBias& bias = {});

namespace cuda {
/// The same on the kernels of kernels/grouped_gemm.h, for contiguous x and gates; nothing where they do not take these tensors:
/// they are for bfloat16 and widths that are multiples of 8. Backward
/// - keeps x and the pre-activation only, 2TD + 4TKF bytes (gated), and writes the gradient of the pre-activation over it, so
/// it
///   runs once: a second one throws;
/// - puts the gradients of weights and biases where ExpertGemms::weight_gradient (grouped_gemm_cuda.h) says.
/// Where no gradient is wanted, the pre-activation is freed before the down projection allocates.
/// Nothing waits for the GPU; every run gives the same bits.
std::optional<at::Tensor> moe_mlp(const at::Tensor& x_TD, const at::Tensor& w1, const at::Tensor& w2, const at::Tensor& gates,
                                  const Routing& routing, Activation kind, const MoeMlpBias& bias);
}  // namespace cuda

}  // namespace scatterlm::ops

// The MoE MLP on our own kernels (kernels/grouped_gemm.h).
#pragma once
#include <ATen/core/Tensor.h>

#include "lib/config/enums.h"
#include "lib/ops/moe_mlp.h"
#include "lib/ops/routing.h"

namespace scatterlm::ops {

/// bfloat16 where kernels run (device.h), widths that are multiples of 8.
bool kernels_take_moe_mlp(const at::Tensor& x_TD, const at::Tensor& w1, const at::Tensor& w2, const Routing& routing,
                          const MoeMlpBias& bias);

/// As moe_mlp(), of contiguous x and gates. Backward
/// - keeps x and H only, 2TD + 4TKF bytes (gated), and writes dH over H, so it runs once; a second one throws;
/// - puts the gradients of weights and biases where ExpertGemms::weight_gradient (expert_gemms.h) says.
/// Where no gradient is wanted, H goes before the down projection comes.
/// Nothing waits for the GPU; the same bits on every run.
at::Tensor moe_mlp_on_kernels(const at::Tensor& x_TD, const at::Tensor& w1, const at::Tensor& w2, const at::Tensor& gates_TK,
                              const Routing& routing, Activation kind, const MoeMlpBias& bias);

}  // namespace scatterlm::ops

#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace scatterlm::ops {

/// Returns y = x weight^T + bias [..., N_out] for x [..., N_in], weight [N_out, N_in] of x's dtype and bias [N_out];
/// differentiable. It is at::linear, with faster products on the CPU (gemm.h), and on a GPU with bfloat16 weights whose
/// gradients are added in float32 (gradient_target.h), not rounded before, and with a kernel for up to 32 rows where no
/// gradient is wanted, as when a model generates. Throws "[linear] ..." if shapes or dtypes do not fit.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias = {});

namespace cuda {  // without a gradient, for contiguous rows; nothing where no kernel takes these tensors
std::optional<at::Tensor> linear(const at::Tensor& x_RN, const at::Tensor& weight, const std::optional<at::Tensor>& bias);
}

}  // namespace scatterlm::ops

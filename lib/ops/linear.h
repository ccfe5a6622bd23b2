#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace scatterlm::ops {

/// Returns y = x weight^T + bias [..., N_out] for x [..., N_in], weight [N_out, N_in] of x's dtype and bias [N_out];
/// differentiable. It is at::linear, with faster products on the CPU (gemm.h), and on a GPU with bfloat16 weights whose
/// gradients are added in float32 (gradient_target.h), not rounded before, and with a kernel for up to 32 rows where no
/// gradient is wanted, as when a model generates. Throws "[linear] ..." if shapes or dtypes do not fit.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias = {});

/// A product, and its rows again for what else reads them.
struct LinearAndRows {
  at::Tensor y_TM;  ///< [T, M]
  at::Tensor x_TN;  ///< [T, N]
};

/// linear() of rows x [T, N] that others read as well, weight [M, N]. Let the others read the rows that it returns: their
/// gradient then goes through this product, which adds its own to it, where autograd would read both and write a third. What
/// the one operation that reads the returned rows gives as their gradient is overwritten, so it must be a tensor of its own.
LinearAndRows linear_and_rows(const at::Tensor& x_TN, const at::Tensor& weight_MN);

/// Returns base + x weight^T, with one rounding, in the memory of base: base [T, M], x [T, N], weight [M, N]. Differentiable in
/// all three, for a base that no other backward pass needs.
at::Tensor add_linear(at::Tensor base_TM, const at::Tensor& x_TN, const at::Tensor& weight_MN);

/// dy weight, the gradient of the rows of a product; added to that of their other readers, in its memory, if there is one.
at::Tensor rows_gradient(const at::Tensor& others_TN, const at::Tensor& dy_TM, const at::Tensor& weight_MN);

namespace cuda {  // without a gradient, for contiguous rows; nothing where no kernel takes these tensors
std::optional<at::Tensor> linear(const at::Tensor& x_RN, const at::Tensor& weight, const std::optional<at::Tensor>& bias);
}

}  // namespace scatterlm::ops

#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace scatterlm::ops {

/// RMSNorm over the last dimension: y = (x / sqrt(mean(x^2) + eps)) * weight. The bracket is computed in float32 (float64 for
/// float64) and rounded to x's dtype before it is multiplied by the weight. x [..., D] and weight [D] have one dtype; returns
/// the shape and dtype of x, differentiable in both. Source: Zhang and Sennrich, arXiv 1910.07467.
/// Throws "[rms_norm] ..." for wrong shapes or dtypes.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

struct AddedAndNormed {
  at::Tensor sum, y;
};

/// A step of the residual stream: sum = x + branch and y = rms_norm(sum, weight, eps), both differentiable. branch has the
/// shape and dtype of x; without it the sum is x. On a GPU one kernel computes both, and one the gradient of x and branch,
/// which is rounded once. y and the gradient have the same bits whether x is given with a branch or their sum without one.
/// Throws
/// "[add_rms_norm] ..." for another branch, and what rms_norm throws.
AddedAndNormed add_rms_norm(const at::Tensor& x, const std::optional<at::Tensor>& branch, const at::Tensor& weight, double eps);

namespace cpu {  // for CPU tensors
/// Writes y [N, D] and the reciprocal roots rstd [N], which backward needs.
void rms_norm_fwd(const at::Tensor& x_ND, const at::Tensor& weight, double eps, at::Tensor& y_ND, at::Tensor& rstd_N);
/// Writes dx [N, D] and sets dweight [D].
void rms_norm_bwd(const at::Tensor& dy_ND, const at::Tensor& x_ND, const at::Tensor& weight, const at::Tensor& rstd_N,
                  at::Tensor& dx_ND, at::Tensor& dweight);
}  // namespace cpu

namespace cuda {  // nothing where no kernel takes these tensors
std::optional<AddedAndNormed> add_rms_norm(const at::Tensor& x, const std::optional<at::Tensor>& branch,
                                           const at::Tensor& weight, double eps);
}  // namespace cuda

}  // namespace scatterlm::ops

// Biases of experts, added to rows in expert order, in LibTorch's own operations on any device. Plain functions outside of
// autograd, like those of grouped_gemm.h. The ops on kernels add biases in the grouped GEMM and use kernels/expert_bias.h.
#pragma once
#include <ATen/core/Tensor.h>

namespace scatterlm::ops {

/// Returns [R, N] with R = num_rows: the bias b[e] of bias_EN [E, N] for each row of expert e. offsets_E1 [E+1] int32 are the
/// first rows of the experts. Rows past the last expert's hold the last bias; nothing reads them.
at::Tensor expert_bias_rows(const at::Tensor& bias_EN, const at::Tensor& offsets_E1, int64_t num_rows);

/// Returns the gradient [E, N] of the biases in dy's dtype: the sum of scale[m] dy[m] over the rows m of the expert, 0 for an
/// expert without rows. dy_RN [R, N] and scale_R [R], float32 (float64 for float64), are in expert order.
at::Tensor expert_bias_grad(const at::Tensor& dy_RN, const at::Tensor& scale_R, const at::Tensor& offsets_E1);

}  // namespace scatterlm::ops

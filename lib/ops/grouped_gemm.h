// Matrix products of experts over rows in expert order, in LibTorch's own operations. Plain functions outside of autograd, on
// which the ops with experts build where no kernel takes their tensors (their kernels: grouped_gemm_cuda.h).
// The rows of expert e are offsets_E1[e] .. offsets_E1[e+1] - 1 (int32); weights are [E, N_out, N_in]; one dtype throughout.
// Outside of bfloat16 with widths that are multiples of 8, a GPU is waited for: its offsets come to the host.
#pragma once
#include <ATen/core/Tensor.h>

namespace scatterlm::ops {

/// Returns y = x W[e]^T [R, N_out] for x_RN [R, N_in].
at::Tensor grouped_gemm_fwd(const at::Tensor& x_RN, const at::Tensor& weight, const at::Tensor& offsets_E1);

/// Returns the gradient of the input, dx = dy W[e] [R, N_in], for dy_RN [R, N_out].
at::Tensor grouped_gemm_dgrad(const at::Tensor& dy_RN, const at::Tensor& weight, const at::Tensor& offsets_E1);

/// Returns the weight gradient [E, N_out, N_in]: dW[e] = sum over the rows of dy^T x, 0 for an expert without rows, for dy_RN
/// [R, N_out] and x_RN [R, N_in].
at::Tensor grouped_gemm_wgrad(const at::Tensor& dy_RN, const at::Tensor& x_RN, const at::Tensor& offsets_E1);

}  // namespace scatterlm::ops

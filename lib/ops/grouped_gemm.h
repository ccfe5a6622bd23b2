// Matrix products of experts over rows in expert order. Plain functions outside of autograd; ops with experts build on them.
// rows of expert e: offsets_E1[e] .. offsets_E1[e+1]-1. Weights are (out, in).
#pragma once
#include <ATen/core/Tensor.h>

namespace scatterlm::ops {

/// x_RN [R, N_in], weight [E, N_out, N_in] -> [R, N_out]: y = x W[e]^T.
at::Tensor grouped_gemm_fwd(const at::Tensor& x_RN, const at::Tensor& weight, const at::Tensor& offsets_E1);

/// dy_RN [R, N_out], weight [E, N_out, N_in] -> [R, N_in]: dx = dy W[e].
at::Tensor grouped_gemm_dgrad(const at::Tensor& dy_RN, const at::Tensor& weight, const at::Tensor& offsets_E1);

/// dy_RN [R, N_out], x_RN [R, N_in] -> [E, N_out, N_in]: dW[e] = sum over rows of dy^T x; 0 for an expert without rows.
at::Tensor grouped_gemm_wgrad(const at::Tensor& dy_RN, const at::Tensor& x_RN, const at::Tensor& offsets_E1);

}  // namespace scatterlm::ops

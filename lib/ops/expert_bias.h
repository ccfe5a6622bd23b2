// Biases b[e] of experts, added to rows in expert order. Plain functions outside of autograd, like those of grouped_gemm.h.
#pragma once
#include <ATen/core/Tensor.h>

namespace scatterlm::ops {

/// bias [E, N] -> [R, N]: b[e] for each row of e; anything for rows behind the last expert's.
at::Tensor expert_bias_rows(const at::Tensor& bias_EN, const at::Tensor& offsets_E1, int64_t num_rows);

/// dy_RN [R, N], scale_R [R] in fp32 (fp64 of fp64) -> [E, N]: db[e] = sum over rows of scale dy; 0 for an expert without rows.
/// A scale for each row, as dy; the kernel (kernels/expert_bias.h) takes gates of slots and finds those of its rows itself.
at::Tensor expert_bias_grad(const at::Tensor& dy_RN, const at::Tensor& scale_R, const at::Tensor& offsets_E1);

}  // namespace scatterlm::ops

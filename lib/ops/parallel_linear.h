#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "lib/ops/routing.h"

namespace scatterlm::ops {

/// Order of rows: by token and slot, or by expert. ScatterMoE calls them "scattered" and "grouped".
enum class RowOrder { kToken, kExpert };

/// ScatterMoE's ParallelLinear (Tan et al., arXiv 2403.08245, section 3): each row times the weight of its expert, without
/// padding.
///   Y[out(m)] = W[expert(m)] X[in(m)]     in(m) = sorted[m] / k (kToken) or m (kExpert), out(m) = sorted[m] or m
/// x is [T, N_in] in token order (k = K: every token feeds its K slots), [R, N_in] in slot order (k = 1), or [R, N_in] in
/// expert order; weight [E, N_out, N_in] has x's dtype. Returns [R, N_out] in out_order or, with gates_TK [T, K] in float32
/// (float64 for float64; needs out_order kToken), the weighted sum [T, N_out]. Differentiable in x, weight and gates. Backward
/// keeps no gated output and gets the gradient of the gates as <dO W, x>, the form for MoA in section 4 of Guo et al., arXiv
/// 2512.14080. Throws "[parallel_linear] ..." if shapes, dtypes or devices do not fit, or for a routing after token rounding.
at::Tensor parallel_linear(const at::Tensor& x, const at::Tensor& weight, const Routing& routing, RowOrder in_order,
                           RowOrder out_order, const std::optional<at::Tensor>& gates_TK = {});

namespace cuda {
/// The same on the kernels of kernels/grouped_gemm.h, for contiguous x and gates; nothing where they do not take these tensors:
/// they are for bfloat16 and widths that are multiples of 8. Rows are gathered while they are loaded and, without gates, stored
/// in their order directly; the only copies of rows are two in the backward of a gated sum (s x and s da'). Backward keeps x,
/// the gates and the routing, and puts the gradient of the weight where ExpertGemms::weight_gradient (grouped_gemm_cuda.h)
/// says.
std::optional<at::Tensor> parallel_linear(const at::Tensor& x, const at::Tensor& weight, const Routing& routing,
                                          RowOrder in_order, RowOrder out_order, const std::optional<at::Tensor>& gates_TK);
}  // namespace cuda

}  // namespace scatterlm::ops

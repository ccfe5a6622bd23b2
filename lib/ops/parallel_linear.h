#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "lib/ops/routing.h"

namespace scatterlm::ops {

enum class RowOrder { kToken, kExpert };  ///< "scattered" and "grouped" of ScatterMoE

/// ScatterMoE's ParallelLinear (Tan et al., arXiv 2403.08245, section 3): each row times its expert's weight, without padding.
///   Y[out(m)] = W[expert(m)] X[in(m)]     in(m) = sorted[m] / k (kToken) or m (kExpert), out(m) = sorted[m] or m
/// x: kToken [T, N_in] (k = K: every token feeds its K slots) or [R, N_in] in slot order (k = 1); kExpert [R, N_in].
/// weight [E, N_out, N_in]. Result [R, N_out] in out_order; with gates_TK (needs out_order kToken) the weighted sum [T, N_out].
/// A routing of token_rounding() is refused.
/// Backward is written by hand: no cached gated output, dp through <dO W, x> (MoA form of section 4 in Guo et al., 2512.14080).
at::Tensor parallel_linear(const at::Tensor& x, const at::Tensor& weight, const Routing& routing, RowOrder in_order,
                           RowOrder out_order, const std::optional<at::Tensor>& gates_TK = {});

}  // namespace scatterlm::ops

// ParallelLinear on our own kernels (kernels/grouped_gemm.h).
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "lib/ops/parallel_linear.h"

namespace scatterlm::ops {

/// bfloat16 where kernels run (device.h), widths that are multiples of 8.
bool kernels_take_parallel_linear(const at::Tensor& x, const at::Tensor& weight, const Routing& routing);

/// As parallel_linear(). Rows are gathered while they are loaded and, without gates, stored in their order directly: no copy of
/// a group of rows but two in the backward of a gated sum (s x and s da'). Backward keeps x, the gates and the routing. The
/// gradient of a weight goes where ExpertGemms::weight_gradient says.
at::Tensor parallel_linear_on_kernels(const at::Tensor& x, const at::Tensor& weight, const Routing& routing, RowOrder in_order,
                                      RowOrder out_order, const std::optional<at::Tensor>& gates_TK);

}  // namespace scatterlm::ops

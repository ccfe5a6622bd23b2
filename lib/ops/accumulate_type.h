#pragma once
#include <ATen/core/Tensor.h>

namespace scatterlm::ops {

/// Precision of sums, logits, gates and losses: fp32, or fp64 of fp64.
inline at::ScalarType accumulate_type(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

}  // namespace scatterlm::ops

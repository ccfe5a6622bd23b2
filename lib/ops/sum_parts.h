#pragma once
#include <ATen/core/Tensor.h>

namespace scatterlm::ops {

/// out [n] = the sum of the rows of parts [r, n], in their order; fp32 between bf16. Both contiguous, of one type, and out none of
/// parts. The same bits on every device.
void sum_parts(const at::Tensor& parts, at::Tensor out);

}  // namespace scatterlm::ops

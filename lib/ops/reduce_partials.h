#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace scatterlm::ops {

/// out [n] = the sum of r parts [n] in their order, part `own_index` being `own` and the others the rows of others [r-1, n];
/// fp32 between bf16. All contiguous, of one type; out may be own. The same bits on every device.
void reduce_partials(const at::Tensor& others, const at::Tensor& own, int64_t own_index, at::Tensor out);

}  // namespace scatterlm::ops

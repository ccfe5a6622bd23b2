// The sum over ranks that ends a reduce-scatter, once the parts of the other ranks have arrived.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace scatterlm::ops {

/// Adds r parts [n] in the order of their ranks into out [n]. Part `own_index` (0 .. r - 1) is `own` [n], the others are the
/// rows of others [r - 1, n]. Sums of bfloat16 parts are kept in float32 and rounded once. All tensors are contiguous, of one
/// dtype and on one device; out may be own. The result has the same bits on every device.
/// Throws "[reduce_partials] ..." for other shapes, dtypes or devices.
void reduce_partials(const at::Tensor& others, const at::Tensor& own, int64_t own_index, at::Tensor out);

namespace cuda {
/// Returns false where no kernel takes these tensors.
bool reduce_partials(const at::Tensor& others, const at::Tensor& own, int64_t own_index, const at::Tensor& out);
}  // namespace cuda

}  // namespace scatterlm::ops

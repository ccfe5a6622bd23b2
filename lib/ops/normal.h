// Counter-based random numbers: number i of the stream of (seed, name) depends on nothing else, on any device.
// Generator: Philox4x32 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; see kernels/device/philox.h.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace scatterlm::ops {

/// Returns the number of the stream that belongs to a tensor's logical name: 64-bit FNV-1a followed by a finaliser.
uint64_t stream_of(uint64_t seed, std::string_view name);

/// Fills out [n], a contiguous float32 vector, with the elements first .. first + n - 1 of a stream of standard normal numbers
/// times `std`: the same bits on every device. Throws "[fill_normal] ..." for another shape or dtype or a negative `first`.
void fill_normal(at::Tensor out, uint64_t stream, int64_t first, float std);

namespace cuda {
/// Returns false where no kernel can write this tensor. `scale` is the standard deviation times kernels::kInverseSigma.
bool fill_normal(const at::Tensor& out, uint64_t stream, int64_t first, float scale);
}  // namespace cuda

}  // namespace scatterlm::ops

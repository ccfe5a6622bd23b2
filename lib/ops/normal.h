// Counter-based random numbers: value i of stream (seed, name) depends on nothing else, on any device.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace scatterlm::ops {

/// 64-bit FNV-1a followed by a finaliser: the stream number of a tensor's logical name.
uint64_t stream_of(uint64_t seed, std::string_view name);

/// Fills out [n] (fp32, contiguous) with elements first .. first+n-1 of the standard normal stream times std: the same bits on
/// every device.
void fill_normal(at::Tensor out, uint64_t stream, int64_t first, float std);

}  // namespace scatterlm::ops

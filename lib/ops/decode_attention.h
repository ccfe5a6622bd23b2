#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace scatterlm::ops {

/// Cached keys and values of one layer, with room for C positions.
struct KvCacheLayer {
  at::Tensor k, v;      ///< [B, C, Hkv, P]; what no position has filled yet is finite
  at::Tensor arrivals;  ///< [B, H] int32: counters of the kernel, which makes them; zero between two calls
};

/// Attention of one new position in each sequence: stores k and v [B, 1, Hkv, P] in the cache at `position` and returns what
/// attention() (lib/ops/attention.h) returns for q [B, 1, H, P] and the positions up to this one, or the last `window` of them
/// if it is above 0. All have one dtype; position [1] is int64 on the device of q, 0 to C - 1, which only a CPU checks. On a
/// GPU the host does not wait for it and all shapes are fixed, so that the call can be recorded as part of a CUDA graph. Not
/// differentiable. Throws "[decode_attention] ..." if shapes, dtypes or devices do not fit.
at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, KvCacheLayer& cache,
                            const at::Tensor& position, int64_t window = 0);

// Backends, of which decode_attention.cpp picks one.
namespace ref {  // all C positions with a mask, on any device and without waiting for it; positions are not checked
at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, KvCacheLayer& cache,
                            const at::Tensor& position, int64_t window);
}
namespace cuda {  // nothing where no kernel takes these tensors
std::optional<at::Tensor> decode_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, KvCacheLayer& cache,
                                           const at::Tensor& position, int64_t window);
}

}  // namespace scatterlm::ops

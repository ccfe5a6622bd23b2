// Rotary position embedding (RoPE) in the rotate-half form: element i of a head pairs with element i + P/2.
// Source: Su et al., "RoFormer", arXiv 2104.09864.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

namespace scatterlm::ops {

/// Returns (cos, sin) of the angles, each [max_positions, P/2] in float32. The angle of position p and pair i is
/// p * theta^(-2i/P) radians. Throws "[rope] ..." unless head_dim P is even and positive.
std::pair<at::Tensor, at::Tensor> rope_tables(int64_t max_positions, int64_t head_dim, double theta, at::Device device);

/// theta^(-2i/P) of each pair i, [P/2] in float64. Throws "[rope] ..." unless head_dim P is even and positive.
at::Tensor rope_frequencies(int64_t head_dim, double theta);

/// The same tables for given frequencies [P/2] in float64, cosines and sines times `factor`.
std::pair<at::Tensor, at::Tensor> rope_tables(int64_t max_positions, const at::Tensor& frequencies, double factor,
                                              at::Device device);

/// Rotates every pair (low, high) of a head by its angle: (low cos - high sin, high cos + low sin), in float32 (float64 for
/// float64). x is [B, S, P], [B, S, H, P] or, with G H heads, [B, S, G, H, P]; cos and sin are [S, P/2] float32, for these S
/// positions. Returns the shape and dtype of x, contiguous; differentiable in x.
/// A view x is read with its own strides, and its gradient has the memory order of x: a view with G and H transposed gets its
/// heads reordered without a copy forward or backward. Throws "[rope] ..." for wrong shapes or dtypes.
at::Tensor rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

// Backends, of which rope.cpp picks one. sign is 1, or -1 to rotate back. x_BSGHP has contiguous heads.
namespace ref {  // LibTorch's own operations, on any device
at::Tensor rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);
}
namespace cpu {
at::Tensor rotate(const at::Tensor& x_BSGHP, const at::Tensor& cos, const at::Tensor& sin, int sign);
}
namespace cuda {  // nothing where no kernel takes these tensors
std::optional<at::Tensor> rotate(const at::Tensor& x_BSGHP, const at::Tensor& cos, const at::Tensor& sin, int sign);
}

}  // namespace scatterlm::ops

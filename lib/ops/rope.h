#pragma once
#include <ATen/core/Tensor.h>

#include <utility>

namespace scatterlm::ops {

/// cos, sin [max_positions, P/2] in fp32: angle of position p and pair i is p * theta^(-2i/P). Su et al., arXiv 2104.09864.
std::pair<at::Tensor, at::Tensor> rope_tables(int64_t max_positions, int64_t head_dim, double theta, at::Device device);

/// Rotate-half form: element i pairs with i + P/2. x [B, S, P], [B, S, H, P], or [B, S, G, H, P] with G H heads; cos, sin [S,
/// P/2] for the S positions -> shape and dtype of x, contiguous. A view is read where it lies, and its gradient is in the order
/// of its memory: so a view with G and H transposed gets its heads reordered without a copy there or back.
at::Tensor rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

namespace ref {
at::Tensor rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);
}

}  // namespace scatterlm::ops

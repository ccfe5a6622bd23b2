#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace scatterlm::ops {

/// Replaces each matrix X = U S V^T [n, rows, cols] by `scale` times nearly its semi-orthogonal factor, U S' V^T, where the
/// singular values S' lie between about 0.7 and 1.2 after five iterations, wherever S was not tiny relative to the matrix's
/// norm (its values grow by 3.4 per iteration). A matrix of zeros stays zero. Scaled to Frobenius norm 1, and transposed where
/// it is tall, X becomes a X + (b A + c A A) X with A = X X^T and (a, b, c) = (3.4445, -4.7750, 2.0315) in every iteration.
/// Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024, https://kellerjordan.github.io/posts/muon.
void newton_schulz_(const at::Tensor& matrices, int64_t iterations, double scale);

}  // namespace scatterlm::ops

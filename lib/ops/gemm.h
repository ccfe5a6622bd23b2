// Matrix products outside of autograd, of matrices on one device. Errors are LibTorch's own.
#pragma once
#include <ATen/core/Tensor.h>

namespace scatterlm::ops {

/// Writes a b to out: a [M, K], b [K, N], out [M, N], all of one dtype. out may be a slice of rows of a larger matrix.
void gemm(at::Tensor out, const at::Tensor& a, const at::Tensor& b);

/// Adds a b to out, with the shapes and dtype of gemm().
void gemm_add(at::Tensor out, const at::Tensor& a, const at::Tensor& b);

/// Returns a b [M, N] in float32 (float64 for float64 a). The factors may have different dtypes.
at::Tensor wide_gemm(const at::Tensor& a, const at::Tensor& b);

/// Returns true where a product of a new shape first compiles a kernel, so that few shapes are faster than many.
bool gemm_compiles_shapes(const at::Tensor& a);

}  // namespace scatterlm::ops

// Matrix products outside of autograd, of matrices on one device. Errors are LibTorch's own.
#pragma once
#include <ATen/core/Tensor.h>

#include "kernels/device/gradient_update.h"

namespace scatterlm::ops {

/// Writes a b to out: a [M, K], b [K, N], out [M, N], all of one dtype. out may be a slice of rows of a larger matrix.
void gemm(at::Tensor out, const at::Tensor& a, const at::Tensor& b);

/// Adds a b to out, with the shapes and dtype of gemm().
void gemm_add(at::Tensor out, const at::Tensor& a, const at::Tensor& b);

/// Returns a b [M, N] in float32 (float64 for float64 a). The factors may have different dtypes.
at::Tensor wide_gemm(const at::Tensor& a, const at::Tensor& b);

/// Writes a b to out, or adds it to what is there: a [M, K] and b [K, N] of one dtype, out [M, N] contiguous, of the same dtype
/// or float32. Products are rounded to out's dtype alone.
void update_gemm(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, kernels::GradientUpdate update);

/// Returns true where a product of a new shape first compiles a kernel, so that few shapes are faster than many.
bool gemm_compiles_shapes(const at::Tensor& a);

}  // namespace scatterlm::ops

// Matrix products outside of autograd.
#pragma once
#include <ATen/core/Tensor.h>

namespace scatterlm::ops {

/// out = a b for matrices; out may be a slice of rows. One dtype.
void gemm(at::Tensor out, const at::Tensor& a, const at::Tensor& b);

/// out += a b.
void gemm_add(at::Tensor out, const at::Tensor& a, const at::Tensor& b);

/// a b in fp32 (fp64 of fp64). The factors may have different dtypes.
at::Tensor wide_gemm(const at::Tensor& a, const at::Tensor& b);

/// True where products of a new shape first compile a kernel, so that a few shapes that come back are faster than many.
bool gemm_compiles_shapes(const at::Tensor& a);

}  // namespace scatterlm::ops

// What an op must know of the GPU that a tensor is on, to call kernels.
#pragma once
#include <ATen/core/Tensor.h>

struct CUstream_st;

namespace scatterlm::ops {

/// Compute capability 9.0, in a build with CUDA.
bool is_hopper(const at::Tensor& x);

/// Where kernels on this tensor are enqueued (a cudaStream_t).
CUstream_st* current_stream(const at::Tensor& x);

/// Multiprocessors of this tensor's GPU.
int num_sms(const at::Tensor& x);

}  // namespace scatterlm::ops

// What an op must know of the GPU that a tensor is on, to call kernels.
#pragma once
#include <ATen/core/Tensor.h>

struct CUstream_st;

namespace scatterlm::ops {

/// Whether kernels can run where this tensor is: on a GPU, in a build that has them.
bool has_kernels(const at::Tensor& x);

/// The same, of compute capability 9.0.
bool is_hopper(const at::Tensor& x);

/// Where kernels on this tensor are enqueued (a cudaStream_t).
CUstream_st* current_stream(const at::Tensor& x);

/// Multiprocessors of this tensor's GPU.
int num_sms(const at::Tensor& x);

}  // namespace scatterlm::ops

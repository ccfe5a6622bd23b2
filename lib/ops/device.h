// What an op must know of the GPU that a tensor is on, to call kernels.
#pragma once
#include <ATen/core/Tensor.h>

struct CUstream_st;

namespace scatterlm::ops {

/// Whether kernels can run where this tensor is: on a GPU of compute capability 8.0 or later, in a build that has them.
bool has_kernels(const at::Tensor& x);

/// Whether they can also load it 16 bytes at a time: contiguous, aligned, in rows of whole pieces.
inline bool kernels_can_load(const at::Tensor& x) {
  return has_kernels(x) && x.is_contiguous() && x.size(-1) > 0 && x.size(-1) * x.element_size() % 16 == 0 &&
         reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

/// That of this tensor's GPU, 90 for 9.0: it decides between families of kernels.
int compute_capability(const at::Tensor& x);

/// For tests and benchmarks: takes every GPU for one of this compute capability from now on; 0: for what it is.
void assume_compute_capability(int capability);

/// Where kernels on this tensor are enqueued (a cudaStream_t).
CUstream_st* current_stream(const at::Tensor& x);

/// Multiprocessors of this tensor's GPU.
int num_sms(const at::Tensor& x);

}  // namespace scatterlm::ops

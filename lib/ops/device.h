// What an op must know of the GPU that a tensor is on, to call kernels.
#pragma once
#include <ATen/core/Tensor.h>

struct CUstream_st;

namespace scatterlm::ops {

/// The CUDA version that this program's kernels were compiled with, 13000 for 13.0; 0 in a build without kernels.
int kernels_cuda_version();

/// Whether kernels can run where this tensor is: on a GPU of compute capability 8.0 or later, in a build that has kernels.
bool has_kernels(const at::Tensor& x);

/// Whether kernels can also load this tensor 16 bytes at a time: it is contiguous and aligned, and its rows are multiples of 16
/// bytes.
inline bool kernels_can_load(const at::Tensor& x) {
  return has_kernels(x) && x.is_contiguous() && x.size(-1) > 0 && x.size(-1) * x.element_size() % 16 == 0 &&
         reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

/// For tests and benchmarks: from now on ops take every GPU for one of this compute capability (80 for 8.0); 0 ends that.
void assume_compute_capability(int capability);

// The functions below exist only in a build with kernels; *_cuda.cpp files call them.

/// Compute capability of the GPU that the tensor is on, 90 for 9.0: it decides between families of kernels.
int compute_capability(const at::Tensor& x);

/// The stream on which kernels for this tensor are enqueued (a cudaStream_t).
CUstream_st* current_stream(const at::Tensor& x);

/// Number of multiprocessors of the GPU that the tensor is on.
int num_sms(const at::Tensor& x);

}  // namespace scatterlm::ops

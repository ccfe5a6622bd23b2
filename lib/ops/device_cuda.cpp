#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <atomic>

#include "lib/ops/device.h"
#include "lib/util/gpu.h"

namespace scatterlm::ops {
namespace {

std::atomic<int> assumed_capability = 0;  // autograd's threads read it too

const Gpu& gpu_of(const at::Tensor& x) { return gpus().at(static_cast<size_t>(x.device().index())); }

}  // namespace

int kernels_cuda_version() { return CUDART_VERSION; }

bool has_kernels(const at::Tensor& x) { return x.is_cuda() && gpu_of(x).compute_capability >= 80; }

int compute_capability(const at::Tensor& x) {
  const int assumed = assumed_capability;
  return assumed ? assumed : static_cast<int>(gpu_of(x).compute_capability);
}

void assume_compute_capability(int capability) { assumed_capability = capability; }

CUstream_st* current_stream(const at::Tensor& x) { return c10::cuda::getCurrentCUDAStream(x.device().index()).stream(); }

int num_sms(const at::Tensor& x) { return static_cast<int>(gpu_of(x).multiprocessors); }

}  // namespace scatterlm::ops

#include "lib/ops/device.h"

#ifdef SCATTERLM_KERNELS
#include <c10/cuda/CUDAStream.h>

#include "lib/util/gpu.h"

namespace scatterlm::ops {
namespace {

const Gpu& gpu_of(const at::Tensor& x) { return gpus().at(static_cast<size_t>(x.device().index())); }

}  // namespace

bool has_kernels(const at::Tensor& x) { return x.is_cuda(); }

bool is_hopper(const at::Tensor& x) { return x.is_cuda() && gpu_of(x).compute_capability == 90; }

CUstream_st* current_stream(const at::Tensor& x) { return c10::cuda::getCurrentCUDAStream(x.device().index()).stream(); }

int num_sms(const at::Tensor& x) { return static_cast<int>(gpu_of(x).multiprocessors); }

}  // namespace scatterlm::ops
#else
bool scatterlm::ops::has_kernels(const at::Tensor&) { return false; }
bool scatterlm::ops::is_hopper(const at::Tensor&) { return false; }
#endif

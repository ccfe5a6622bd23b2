// In place of lib/ops/device_cuda.cpp and graph_cuda.cpp: CPU tensors are on a GPU of three multiprocessors, Hopper unless said
// otherwise, which records no graphs.
#include "lib/ops/device.h"

#include "kernels/grouped_gemm.h"
#include "lib/ops/graph.h"
#include "tests/kernels/ops/emulated_device.h"

namespace scatterlm::ops {
namespace {

int assumed_capability = 0;
CUstream_st* stream_now = nullptr;

}  // namespace

int kernels_cuda_version() { return 0; }  // none that was compiled by nvcc
bool has_kernels(const at::Tensor&) { return assumed_capability == 0 || assumed_capability >= 80; }
int compute_capability(const at::Tensor&) { return assumed_capability ? assumed_capability : kernels::kHopper; }
void assume_compute_capability(int capability) { assumed_capability = capability; }
CUstream_st* current_stream(const at::Tensor&) { return stream_now; }
void set_current_stream(CUstream_st* stream) { stream_now = stream; }
int num_sms(const at::Tensor&) { return 3; }
std::function<void()> captured(const std::function<void()>& run, c10::Device) { return run; }

}  // namespace scatterlm::ops

// In place of lib/ops/device.cpp: CPU tensors are on a Hopper GPU of three multiprocessors.
#include "lib/ops/device.h"

namespace scatterlm::ops {

bool has_kernels(const at::Tensor&) { return true; }
bool is_hopper(const at::Tensor&) { return true; }
CUstream_st* current_stream(const at::Tensor&) { return nullptr; }
int num_sms(const at::Tensor&) { return 3; }

}  // namespace scatterlm::ops

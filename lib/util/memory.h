#pragma once
#include <ATen/core/Tensor.h>

namespace scatterlm {

/// Peak so far, in GiB: what LibTorch allocated on a GPU, the resident set of the process for a CPU.
double peak_memory_gib(at::Device device);

}  // namespace scatterlm

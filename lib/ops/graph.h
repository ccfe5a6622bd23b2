// Work of a GPU recorded once and started as a whole.
#pragma once
#include <c10/core/Device.h>

#include <functional>

namespace scatterlm::ops {

/// Runs `run` and records it as a CUDA graph; what is returned starts that again, on the same memory: tensors that `run`
/// assigns outside stay where they are, and have values once it is started. `run` must not wait for the GPU. On a CPU, or in a
/// program without kernels, nothing is run, and `run` itself is returned.
std::function<void()> captured(const std::function<void()>& run, c10::Device device);

}  // namespace scatterlm::ops

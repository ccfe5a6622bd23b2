// Work of a GPU recorded once and started as a whole.
#pragma once
#include <c10/core/Device.h>

#include <functional>

namespace scatterlm::bench {

/// Runs `run` and records it as a CUDA graph; what is returned starts that again, on the same memory. On a CPU, or in a program
/// without kernels, it is `run`.
std::function<void()> captured(const std::function<void()>& run, c10::Device device);

}  // namespace scatterlm::bench

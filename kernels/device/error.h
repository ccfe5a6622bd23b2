// The error of everything in kernels/: a contract of a launcher that its caller broke, or a failed CUDA call.
#pragma once
#include <stdexcept>

namespace scatterlm::kernels {

/// Message: "[op] what, with the values".
struct KernelError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace scatterlm::kernels

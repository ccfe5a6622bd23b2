// Inputs that an op needs in one place.
#pragma once
#include <ATen/core/Tensor.h>

#include "lib/util/error.h"

namespace scatterlm::ops {

/// Fails unless `input` is where x is.
inline void check_same_device(const char* op, const at::Tensor& x, const char* name, const at::Tensor& input) {
  if (input.device() != x.device())
    fail("[{}] all inputs must be on {}, got {} on {}", op, x.device().str(), name, input.device().str());
}

}  // namespace scatterlm::ops

// Shapes in error messages: "[3, 4]".
#pragma once
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace scatterlm::ops {

inline std::string shape_of(const at::Tensor& x) {
  return fmt::format("[{}]", fmt::join(x.sizes().begin(), x.sizes().end(), ", "));
}

}  // namespace scatterlm::ops

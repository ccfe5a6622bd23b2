// Several small tensors in one allocation.
#pragma once
#include <ATen/core/Tensor.h>

#include <initializer_list>

namespace scatterlm::ops {

/// A vector to be made, and its number of elements.
struct NewVector {
  at::Tensor& vector;
  int64_t size;
};

/// Sets every tensor to an uninitialised vector with these options. All share one allocation, because each costs the host more
/// than a microsecond; it is freed when the last of them is. Every vector begins at a multiple of 32 elements.
void allocate_together(const at::TensorOptions& options, std::initializer_list<NewVector> vectors);

}  // namespace scatterlm::ops

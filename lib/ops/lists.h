// Lists of integers for kernels.
#pragma once
#include <ATen/core/Tensor.h>

#include <initializer_list>

namespace scatterlm::ops {

/// Where a list is to be, and of how many elements.
struct NewList {
  at::Tensor& list;
  int64_t size;
};

/// Makes lists of the type of `options`, not initialised, that share one allocation, for each costs the host more than a
/// microsecond. Each begins at a multiple of 32 elements; all live as long as one of them.
void allocate_lists(const at::TensorOptions& options, std::initializer_list<NewList> lists);

}  // namespace scatterlm::ops

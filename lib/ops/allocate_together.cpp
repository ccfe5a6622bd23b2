#include "lib/ops/allocate_together.h"

#include <ATen/ATen.h>

#include "kernels/device/ceil_div.h"

namespace scatterlm::ops {
namespace {

constexpr int64_t kAlignment = 32, kStride = 1;

int64_t aligned(int64_t size) { return kernels::ceil_div(size, kAlignment) * kAlignment; }

/// buffer[first .. first + size - 1] as a tensor of its own. slice() takes as long as an allocation.
at::Tensor part_of(const at::Tensor& buffer, int64_t first, int64_t size) {
  auto part = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(buffer.storage()), buffer.key_set(), buffer.dtype());
  part.unsafeGetTensorImpl()->set_sizes_and_strides(at::IntArrayRef(size), at::IntArrayRef(kStride), first);
  return part;
}

}  // namespace

void allocate_together(const at::TensorOptions& options, std::initializer_list<NewVector> vectors) {
  int64_t total = 0;
  for (const auto& [vector, size] : vectors) total += aligned(size);
  const auto buffer = at::empty({total}, options);
  int64_t first = 0;
  for (const auto& [vector, size] : vectors) {
    vector = part_of(buffer, first, size);
    first += aligned(size);
  }
}

}  // namespace scatterlm::ops

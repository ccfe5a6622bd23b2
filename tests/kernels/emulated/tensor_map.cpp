// In place of kernels/device/tensor_map.cu: descriptions that the machine of machine.h reads. Checks what the driver checks.
#include "kernels/device/tensor_map.h"

#include <algorithm>
#include <string>

#include "kernels/device/error.h"

namespace scatterlm::kernels {

CUtensorMap tensor_map(const char* op, DataType type, const void* data, std::initializer_list<int64_t> dims,
                       std::initializer_list<int64_t> strides, std::initializer_list<int> box) {
  CUtensorMap map{.data = static_cast<const char*>(data),
                  .rank = static_cast<int>(dims.size()),
                  .element_bytes = type == DataType::kBfloat16 ? 2 : 4};
  const auto refuse = [&](const std::string& why) { throw KernelError("[" + std::string(op) + "] tensor map: " + why); };
  if (reinterpret_cast<uintptr_t>(data) % 16 != 0) refuse("address");
  if (strides.size() + 1 != dims.size() || box.size() != dims.size()) refuse("rank");
  map.stride[0] = map.element_bytes;
  std::copy(dims.begin(), dims.end(), map.dim);
  std::copy(strides.begin(), strides.end(), map.stride + 1);
  std::copy(box.begin(), box.end(), map.box);
  for (const auto dim : dims)
    if (dim < 1 || dim > int64_t{1} << 32) refuse("dimension " + std::to_string(dim));
  for (const auto stride : strides)
    if (stride % 16 != 0 || stride <= 0 || stride >= int64_t{1} << 40) refuse("stride " + std::to_string(stride));
  for (const auto width : box)
    if (width < 1 || width > 256) refuse("box " + std::to_string(width));
  if (map.box[0] * map.element_bytes != 128) refuse("the box must be as wide as the swizzle");
  return map;
}

}  // namespace scatterlm::kernels

// What kernels that move 16 bytes at once ask of a matrix.
#pragma once
#include <cstdint>
#include <string>

#include "kernels/device/error.h"

namespace scatterlm::kernels {

/// nullptr passes.
inline void check_aligned(const char* op, const char* name, const void* data) {
  if (reinterpret_cast<uintptr_t>(data) % 16 != 0)
    throw KernelError("[" + std::string(op) + "] " + name + " must be aligned to 16 bytes");
}

/// Of contiguous rows of `width` elements; nullptr passes.
inline void check_operand(const char* op, const char* name, const void* data, int64_t width) {
  check_aligned(op, name, data);
  if (width < 8 || width % 8 != 0)
    throw KernelError("[" + std::string(op) + "] rows of " + name + " must be multiples of 8 elements, got " +
                      std::to_string(width));
}

}  // namespace scatterlm::kernels

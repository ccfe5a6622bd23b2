#pragma once
#include <ATen/core/Tensor.h>

namespace scatterlm {

/// Counts what LibTorch allocates for tensors while it lives; one at a time. A GPU's allocator keeps count anyway. For a CPU
/// this puts an allocator in front of LibTorch's, which costs time: not while something is timed. (The resident set would not
/// do: it belongs to the whole process, and freed memory stays in it.) On the meta device it counts what would be allocated.
class MemoryMeter {
 public:
  explicit MemoryMeter(at::Device device);
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  /// Most bytes so far beyond those that were allocated when it began.
  int64_t peak_bytes() const;

 private:
  at::Device device_;
  int64_t before_ = 0;
};

}  // namespace scatterlm

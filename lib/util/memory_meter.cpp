#include "lib/util/memory_meter.h"

#include <c10/core/CPUAllocator.h>

#include <malloc.h>

#include <atomic>

#include "lib/util/memory.h"

namespace scatterlm {
namespace {

std::atomic<int64_t> current = 0, peak = 0;  // bytes under the counting allocator

void add_bytes(int64_t bytes) {
  const int64_t now = current += bytes;
  int64_t highest = peak;
  while (now > highest && !peak.compare_exchange_weak(highest, now)) {
  }
}

/// LibTorch asks it for bare pointers too, so that a block has no place for its size: malloc knows it.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    void* memory = inner()->raw_allocate(size);
    add_bytes(bytes(memory));
    return {memory, memory, &free, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* to, const void* from, size_t size) const override { inner()->copy_data(to, from, size); }

  static c10::Allocator* inner() { return c10::GetDefaultCPUAllocator(); }

 private:
  static int64_t bytes(void* memory) { return static_cast<int64_t>(malloc_usable_size(memory)); }
  static void free(void* memory) {
    current -= bytes(memory);
    inner()->raw_deallocate(memory);
  }
};

/// Of tensors that have shapes but no memory. A block is its size.
class MetaAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    add_bytes(static_cast<int64_t>(size));
    return {nullptr, reinterpret_cast<void*>(size), &free, at::kMeta};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {}

 private:
  static void free(void* size) { current -= static_cast<int64_t>(reinterpret_cast<size_t>(size)); }
};

constexpr uint8_t kPriority = 1;  // LibTorch's own has 0

auto gpu_bytes(at::Device device) { return gpu_allocator().getDeviceStats(device.index()).allocated_bytes[0]; }

}  // namespace

MemoryMeter::MemoryMeter(at::Device device) : device_(device) {
  if (device.is_cuda()) {
    gpu_allocator().resetPeakStats(device.index());
    before_ = gpu_bytes(device).current;
    return;
  }
  before_ = peak = current.load();
  if (device.is_meta()) {
    static MetaAllocator counting;
    c10::SetAllocator(at::kMeta, &counting, kPriority);
  } else {
    static CountingAllocator counting;
    c10::SetCPUAllocator(&counting, kPriority);
  }
}

MemoryMeter::~MemoryMeter() {
  // Tensors of the meta device may outlive a counting allocator that stays: it allocates nothing.
  if (device_.is_cpu()) c10::SetCPUAllocator(CountingAllocator::inner(), kPriority);
}

int64_t MemoryMeter::peak_bytes() const { return (device_.is_cuda() ? gpu_bytes(device_).peak : peak.load()) - before_; }

}  // namespace scatterlm

#include "lib/util/memory_meter.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/CPUAllocator.h>

#include <malloc.h>

#include <atomic>

namespace scatterlm {
namespace {

std::atomic<int64_t> current = 0, peak = 0;  // bytes under the counting allocator

/// LibTorch asks it for bare pointers too, so that a block has no place for its size: malloc knows it.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    void* memory = inner()->raw_allocate(size);
    const int64_t now = current += bytes(memory);
    int64_t highest = peak;
    while (now > highest && !peak.compare_exchange_weak(highest, now)) {
    }
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

constexpr uint8_t kPriority = 1;  // LibTorch's own has 0

auto gpu_bytes(at::Device device) { return at::accelerator::getDeviceStats(device.index()).allocated_bytes[0]; }

}  // namespace

MemoryMeter::MemoryMeter(at::Device device) : device_(device) {
  if (device.is_cuda()) {
    at::accelerator::resetPeakStats(device.index());
    before_ = gpu_bytes(device).current;
  } else {
    static CountingAllocator counting;
    before_ = peak = current.load();
    c10::SetCPUAllocator(&counting, kPriority);
  }
}

MemoryMeter::~MemoryMeter() {
  if (!device_.is_cuda()) c10::SetCPUAllocator(CountingAllocator::inner(), kPriority);
}

int64_t MemoryMeter::peak_bytes() const { return (device_.is_cuda() ? gpu_bytes(device_).peak : peak.load()) - before_; }

}  // namespace scatterlm

#include "lib/util/memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <sys/resource.h>

#include <atomic>

namespace scatterlm {
namespace {

std::atomic<int64_t> beside_allocator = 0;

}  // namespace

void add_device_memory(int64_t bytes) { beside_allocator += bytes; }

double peak_memory_gib(at::Device device) {
  constexpr double kGib = 1 << 30;
  if (device.is_cuda()) {
    const auto stats = at::getDeviceAllocator(device.type())->getDeviceStats(device.index());
    return (static_cast<double>(stats.allocated_bytes[0].peak) + static_cast<double>(beside_allocator)) / kGib;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / kGib;
}

}  // namespace scatterlm

#include "lib/util/memory.h"

#include <ATen/Context.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "lib/util/control_group.h"
#include "lib/util/gpu.h"

namespace scatterlm {
namespace {

std::atomic<int64_t> beside_allocator = 0;

}  // namespace

int64_t total_memory_bytes(at::Device device) {
  if (device.is_cuda()) return gpus().at(static_cast<size_t>(device.index())).memory_bytes;
  const int64_t bytes = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  const auto limit = group_limit("memory");
  return limit ? std::min(bytes, static_cast<int64_t>(*limit)) : bytes;
}

void add_device_memory(int64_t bytes) { beside_allocator += bytes; }

at::DeviceAllocator& gpu_allocator() {
  at::globalContext().lazyInitDevice(at::kCUDA);
  return *at::getDeviceAllocator(at::kCUDA);
}

int64_t allocator_retries(at::Device device) {
  if (!device.is_cuda()) return 0;
  return gpu_allocator().getDeviceStats(device.index()).num_alloc_retries;
}

double peak_memory_gib(at::Device device) {
  constexpr double kGib = 1 << 30;
  if (device.is_cuda()) {
    const auto stats = gpu_allocator().getDeviceStats(device.index());
    return (static_cast<double>(stats.allocated_bytes[0].peak) + static_cast<double>(beside_allocator)) / kGib;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / kGib;
}

void release_cached_memory(at::Device device) {
  if (!device.is_cuda()) return;
  gpu_allocator().emptyCache();
  gpu_allocator().resetPeakStats(device.index());
}

}  // namespace scatterlm

#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace scatterlm {

/// Peak so far, in GiB: what was allocated on a GPU, the resident set of the process for a CPU.
double peak_memory_gib(at::Device device);

/// Before another model in the same process: gives memory that the GPU's allocator holds unused back to the GPU, and lets
/// peak_memory_gib() count from now on. Does nothing on a CPU, where that stays the peak of the whole process.
void release_cached_memory(at::Device device);

/// LibTorch's allocator of GPUs. It knows no GPU before the first use of one, so this prepares them.
at::DeviceAllocator& gpu_allocator();

/// How often LibTorch's allocator had to give memory back and ask again: more than 0 means fragmentation. 0 for a CPU.
int64_t allocator_retries(at::Device device);

/// What the device has in all: a GPU's memory; for a CPU that of the machine, or of its control group where that is less.
int64_t total_memory_bytes(at::Device device);

/// Memory of this process's GPU that LibTorch's allocator knows nothing of: counted from now on. Less than 0 when it is freed.
void add_device_memory(int64_t bytes);

}  // namespace scatterlm

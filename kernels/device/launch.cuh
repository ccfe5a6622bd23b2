// Launching a kernel that takes one struct. Tests replace this file by tests/kernels/emulated.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "kernels/device/error.h"

namespace scatterlm::kernels {

inline void check_cuda(const char* op, const char* call, cudaError_t error) {
  if (error == cudaSuccess) return;
  throw KernelError("[" + std::string(op) + "] " + call + ": " + cudaGetErrorString(error));
}

/// Every GPU has so much dynamic shared memory for a block; more a kernel must be allowed.
constexpr int64_t kSharedBytesAnywhere = 48 * 1024;

/// Allows a kernel more than kSharedBytesAnywhere. Asked once for each kernel, device and growth: a question
/// at every launch costs the host a tenth of the launch.
inline void allow_shared(const char* op, const void* kernel, uint32_t bytes) {
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, uint32_t> allowed;
  int device;
  check_cuda(op, "cudaGetDevice", cudaGetDevice(&device));
  const std::lock_guard lock(mutex);
  auto& most = allowed[{kernel, device}];
  if (bytes <= most) return;
  check_cuda(op, "cudaFuncSetAttribute",
             cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  most = bytes;
}

/// Most dynamic shared memory of a block on the current device.
inline int64_t max_shared_bytes(const char* op) {
  int device, bytes;
  check_cuda(op, "cudaGetDevice", cudaGetDevice(&device));
  check_cuda(op, "cudaDeviceGetAttribute", cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes;
}

/// `shared_bytes` of dynamic shared memory.
template <class Params>
void launch(const char* op, void (*kernel)(Params), int64_t blocks, int threads, uint32_t shared_bytes, const Params& params,
            cudaStream_t stream) {
  const auto* function = reinterpret_cast<const void*>(kernel);
  if (shared_bytes > kSharedBytesAnywhere) allow_shared(op, function, shared_bytes);
  void* arguments[] = {const_cast<Params*>(&params)};
  check_cuda(op, "cudaLaunchKernel",
             cudaLaunchKernel(function, dim3(static_cast<unsigned>(blocks)), dim3(threads), arguments, shared_bytes, stream));
}

}  // namespace scatterlm::kernels

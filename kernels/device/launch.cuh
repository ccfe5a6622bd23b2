// Launching a kernel that takes one struct. Tests replace this file by tests/kernels/emulated.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "kernels/error.h"

namespace scatterlm::kernels {

inline void check_cuda(const char* op, const char* call, cudaError_t error) {
  if (error == cudaSuccess) return;
  throw KernelError("[" + std::string(op) + "] " + call + ": " + cudaGetErrorString(error));
}

/// `shared_bytes` of dynamic shared memory; more than 48 KB are asked for.
template <class Params>
void launch(const char* op, void (*kernel)(Params), int64_t blocks, int threads, uint32_t shared_bytes, const Params& params,
            cudaStream_t stream) {
  if (shared_bytes > 48 * 1024)
    check_cuda(op, "cudaFuncSetAttribute",
               cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
  void* arguments[] = {const_cast<Params*>(&params)};
  check_cuda(op, "cudaLaunchKernel",
             cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(static_cast<unsigned>(blocks)), dim3(threads),
                              arguments, shared_bytes, stream));
}

}  // namespace scatterlm::kernels

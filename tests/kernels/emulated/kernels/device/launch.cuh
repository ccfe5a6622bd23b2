// In place of kernels/device/launch.cuh: runs the kernel on the machine of machine.h.
#pragma once
#include <cstdint>
#include <string>

#include "kernels/device/error.h"
#include "tests/kernels/emulated/cuda_language.h"

namespace scatterlm::kernels {

inline void check_cuda(const char*, const char*, cudaError_t) {}

constexpr int64_t kSharedBytesAnywhere = 48 * 1024;
inline int64_t max_shared_bytes(const char*) { return emulated::max_shared_bytes; }

template <class Params>
void launch(const char*, void (*kernel)(Params), int64_t blocks, int threads, uint32_t shared_bytes, const Params& params,
            cudaStream_t) {
  emulated::run(blocks, threads, shared_bytes, [&] { kernel(params); });
}

}  // namespace scatterlm::kernels

#include "kernels/device/tensor_map.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>

#include "kernels/device/error.h"

namespace scatterlm::kernels {
namespace {

/// The driver's encoder, found at run time: a program that never sees a GPU needs no libcuda.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static const auto function = [] {
    void* symbol = nullptr;
    cudaDriverEntryPointQueryResult result;
    const auto error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &symbol, 12000, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess)
      throw KernelError("the driver has no cuTensorMapEncodeTiled: CUDA 12 or later is needed");
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(symbol);
  }();
  return function;
}

}  // namespace

CUtensorMap tensor_map(const char* op, DataType type, const void* data, std::initializer_list<int64_t> dims,
                       std::initializer_list<int64_t> strides, std::initializer_list<int> box) {
  cuuint64_t size[5], step[4];
  cuuint32_t width[5], element_step[5] = {1, 1, 1, 1, 1};
  std::copy(dims.begin(), dims.end(), size);
  std::copy(strides.begin(), strides.end(), step);
  std::copy(box.begin(), box.end(), width);
  // Encoding is a call of the driver, which wants a context; a thread of autograd may have made no call of the runtime yet.
  thread_local const bool bound = [] {
    int device;
    return cudaGetDevice(&device) == cudaSuccess && cudaSetDevice(device) == cudaSuccess;
  }();
  if (!bound) throw KernelError("[" + std::string(op) + "] no CUDA device");
  CUtensorMap map;
  const auto result =
      encoder()(&map, type == DataType::kBfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                static_cast<cuuint32_t>(dims.size()), const_cast<void*>(data), size, step, width, element_step,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    std::string text;
    for (const auto dim : dims) text += (text.empty() ? "" : ", ") + std::to_string(dim);
    throw KernelError("[" + std::string(op) + "] cuTensorMapEncodeTiled refuses {" + text + "} with error " +
                      std::to_string(result));
  }
  return map;
}

}  // namespace scatterlm::kernels

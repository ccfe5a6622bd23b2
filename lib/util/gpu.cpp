#include "lib/util/gpu.h"

#ifdef SCATTERLM_CUDA
#include <ATen/Context.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

// Its header, ATen/cuda/CUDAContext.h, wants the headers of cuBLAS, cuSPARSE and cuSOLVER, which a small toolkit does not
// bring.
namespace at::cuda {
cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device);
}

namespace scatterlm {
namespace {

std::string format_uuid(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    const bool begins_group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    text += fmt::format("{}{:02x}", begins_group ? "-" : "", static_cast<uint8_t>(uuid.bytes[i]));
  }
  return text;
}

std::vector<Gpu> find_gpus() {
  std::vector<Gpu> found;
  const size_t count = at::hasCUDA() ? at::getNumGPUs() : 0;
  for (size_t i = 0; i < count; ++i) {
    const cudaDeviceProp& device = *at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(i));
    found.push_back({.name = device.name,
                     .memory_bytes = static_cast<int64_t>(device.totalGlobalMem),
                     .compute_capability = 10 * device.major + device.minor,
                     .multiprocessors = device.multiProcessorCount,
                     .shared_bytes = static_cast<int64_t>(device.sharedMemPerBlockOptin),
                     .uuid = format_uuid(device.uuid)});
  }
  return found;
}

}  // namespace

const std::vector<Gpu>& gpus() {
  static const auto found = find_gpus();
  return found;
}

}  // namespace scatterlm
#else
const std::vector<scatterlm::Gpu>& scatterlm::gpus() {
  static const std::vector<Gpu> none;
  return none;
}
#endif

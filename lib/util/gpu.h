// The GPUs of this machine.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace scatterlm {

struct Gpu {
  std::string name;  ///< as the driver spells it: "NVIDIA H200"
  int64_t memory_bytes = 0;
  int64_t compute_capability = 0;  ///< 90 for 9.0
  int64_t multiprocessors = 0;
  int64_t shared_bytes = 0;  ///< most dynamic shared memory of a block
  std::string uuid;          ///< as nvidia-smi spells it: "GPU-5c89d3f0-..."
};

/// In the order of their device indices. Empty without a usable GPU, or if this program was built without CUDA.
const std::vector<Gpu>& gpus();

}  // namespace scatterlm

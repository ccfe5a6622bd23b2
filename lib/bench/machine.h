// The machine that a figure belongs to.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>

#include "lib/bench/work.h"

namespace scatterlm::bench {

struct Machine {
  at::Device device = at::kCPU;
  std::string gpu, driver, cuda;     ///< "NVIDIA H200", "580.159.03", "13.0"; empty on a CPU
  std::string family;                ///< of the kernels: "hopper", "portable"; empty on a CPU
  std::optional<Ceilings> ceilings;  ///< measured now; nothing on a CPU

  int64_t element_bytes() const { return device.is_cuda() ? 2 : 4; }
  const char* dtype() const { return device.is_cuda() ? "bf16" : "fp32"; }
};

/// The first GPU, whose ceilings it measures: a bfloat16 product of 8192^3 and a copy of 2 GiB; a CPU where there is no GPU.
/// `family`: which kernels ops take from now on, hopper or portable; empty: the GPU's own. Throws Error about a GPU without
/// kernels, and about --family.
Machine find_machine(const std::string& family);

/// Speed of a copy of 256 MiB, read and written bytes together.
double measure_copy_tbps(at::Device device);

/// What LibTorch has allocated on a GPU.
struct MemoryUse {
  double saved_mib = 0;  ///< kept by `forward`, its result included
  double peak_mib = 0;   ///< at most, over both passes
};
/// Gives its backward, which holds the result.
using Forward = std::function<std::function<void()>()>;
/// Beyond what is allocated now.
MemoryUse memory_use(const Forward& forward, at::Device device);

}  // namespace scatterlm::bench

#include "lib/doctor/gpus.h"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>
#include <unistd.h>

#include <string>

#include "lib/util/gpu.h"
#include "lib/util/text.h"

#ifdef SCATTERLM_NCCL
#include <cuda_runtime_api.h>
#include <nccl.h>
#endif

namespace scatterlm::doctor {
namespace {

#ifdef SCATTERLM_NCCL

/// 13000 -> "13.0"
std::string cuda_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

Finding check_versions() {
  int driver = 0, runtime = 0, nccl = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  ncclGetVersion(&nccl);
  const auto nccl_text = fmt::format("{}.{}.{}", nccl / 10000, nccl / 100 % 100, nccl % 100);
  Finding finding{.subject = "versions",
                  .text = fmt::format("scatterlm {}, LibTorch {}, CUDA {}, NCCL {}, driver for CUDA {}", SCATTERLM_VERSION,
                                      TORCH_VERSION, cuda_text(runtime), nccl_text, driver > 0 ? cuda_text(driver) : "none")};
  if (nccl != NCCL_VERSION_CODE)
    return {finding.subject, Health::kWarning,
            fmt::format("{}; built for NCCL {}.{}.{}", finding.text, NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH),
            "another libnccl.so.2 comes first: look at LD_LIBRARY_PATH"};
  if (driver > 0 && driver / 1000 < runtime / 1000)
    return {finding.subject, Health::kFailed, finding.text, fmt::format("install a driver for CUDA {}", cuda_text(runtime))};
  return finding;
}

Finding check_gpu(int index, const Gpu& gpu) {
  constexpr double kOwn = 1 << 30;  // what CUDA itself takes for a process, LibTorch's kernels included
  size_t free = 0, total = 0;
  const auto result = cudaSetDevice(index) == cudaSuccess ? cudaMemGetInfo(&free, &total) : cudaGetLastError();
  cudaSetDevice(0);    // check_kernels() launches on the default stream of the current device
  cudaGetLastError();  // or LibTorch's next launch reports it as its own
  Finding finding{.subject = fmt::format("GPU {}", index), .text = gpu.name};
  if (result != cudaSuccess)
    return {finding.subject, Health::kFailed, fmt::format("{}: {}", gpu.name, cudaGetErrorString(result)),
            "nvidia-smi says whether it is in use or broken"};
  const double used = static_cast<double>(total - free);
  finding.text +=
      fmt::format(", compute capability {}.{}, {} of {} free", gpu.compute_capability / 10, gpu.compute_capability % 10,
                  format_bytes(static_cast<double>(free)), format_bytes(static_cast<double>(total)));
  if (gpu.compute_capability < 80)
    return {finding.subject, Health::kFailed, finding.text, "the kernels need compute capability 8.0 or later"};
  if (used > kOwn + 0.02 * static_cast<double>(total))
    return {finding.subject, Health::kWarning, finding.text + fmt::format(": others use {}", format_bytes(used)),
            "nvidia-smi names the processes"};
  return finding;
}

#else

Finding check_versions() {
  return {.subject = "versions",
          .text = fmt::format("scatterlm {}, LibTorch {}, built without CUDA", SCATTERLM_VERSION, TORCH_VERSION)};
}

Finding check_gpu(int, const Gpu&) { return {}; }

#endif

}  // namespace

std::vector<Finding> check_gpus() {
  std::vector<Finding> findings{check_versions()};
  for (size_t i = 0; i < gpus().size(); ++i) findings.push_back(check_gpu(static_cast<int>(i), gpus()[i]));
  if (!gpus().empty()) return findings;
  const bool present = access("/dev/nvidiactl", F_OK) == 0;
  findings.push_back({"GPU", present ? Health::kWarning : Health::kOk,
                      present ? "none that this program can use, although the machine has NVIDIA's driver" : "none",
                      present ? "build with CUDA (scripts/quickstart), and look at CUDA_VISIBLE_DEVICES and nvidia-smi" : ""});
  return findings;
}

}  // namespace scatterlm::doctor

#include "lib/util/version/version.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include "lib/util/gpu.h"
#include "lib/util/text.h"
#include "source_hash.h"  // made at each build by cmake/source_hash.cmake

namespace scatterlm {
namespace {

std::string gpu_text() {
  std::vector<std::string> lines;
  for (const Gpu& gpu : gpus()) {
    lines.push_back(fmt::format("{} ({}, compute capability {}.{})", gpu.name,
                                format_bytes(static_cast<double>(gpu.memory_bytes)), gpu.compute_capability / 10,
                                gpu.compute_capability % 10));
  }
  return lines.empty() ? "none" : fmt::format("{}", fmt::join(lines, "\n           "));
}

std::string source_text(SourceSet set) {
  const SourceHash state = source_hash(set);
  const char* mark = state.dirty && state.hash != "unknown" ? " dirty" : "";
  return fmt::format("{}{} ({})", state.hash, mark, fmt::join(state.sources, " "));
}

}  // namespace

SourceHash source_hash(SourceSet set) { return set == SourceSet::kTraining ? kTrainingSources : kKernelSources; }

std::string version_text() {
  return fmt::format(
      "scatterlm  {}\n"
      "LibTorch   {}\n"
      "CUDA       {}\n"
      "NCCL       {}\n"
      "compiler   g++ {}, {}\n"
      "GPU        {}\n"
      "CPU        {}, {} threads\n"
      "sources    {}\n"
      "           {}",
      SCATTERLM_VERSION, TORCH_VERSION, SCATTERLM_CUDA_TEXT, SCATTERLM_NCCL_TEXT, __VERSION__, SCATTERLM_BUILD_TYPE, gpu_text(),
      at::get_cpu_capability(), at::get_num_threads(), source_text(SourceSet::kTraining), source_text(SourceSet::kKernels));
}

}  // namespace scatterlm

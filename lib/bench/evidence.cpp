#include "lib/bench/evidence.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include <filesystem>

#include "lib/util/error.h"

namespace scatterlm::bench {

using nlohmann::ordered_json;

void require_evidence(const std::string& json, const SourceHash& sources) {
  if (sources.dirty)
    fail_user("--json: this program was built from files that differ from git's index ({}): add them and build again",
              fmt::join(sources.sources, ", "));
  const auto folder = std::filesystem::absolute(json).parent_path();
  if (!std::filesystem::is_directory(folder)) fail_user("--json: {}: no such folder", folder.string());
}

ordered_json evidence(const std::string& bench, const Machine& machine, const std::string& command, const SourceHash& sources,
                      ordered_json rows) {
  const bool gpu = machine.device.is_cuda();
  const auto on_gpu = [&](const std::string& text) { return gpu ? ordered_json(text) : ordered_json(); };
  ordered_json file;
  file["bench"] = bench;
  file["gpu"] = on_gpu(machine.gpu);
  file["num_gpus"] = gpu ? 1 : 0;
  file["family"] = on_gpu(machine.family);
  file["date"] = fmt::format("{:%F}", fmt::gmtime(std::time(nullptr)));
  file["torch"] = TORCH_VERSION;
  file["cuda"] = on_gpu(machine.cuda);
  file["driver"] = on_gpu(machine.driver);
  file["ceilings"] = nullptr;
  if (machine.ceilings)
    file["ceilings"] = {{"gemm_tflops", machine.ceilings->gemm_tflops}, {"copy_tbps", machine.ceilings->copy_tbps}};
  file["command"] = command;
  file["sources"] = sources.sources;
  file["source_hash"] = sources.hash;
  file["rows"] = std::move(rows);
  return file;
}

}  // namespace scatterlm::bench

#include "lib/train/flops.h"

#include <fmt/format.h>

#include "lib/util/text.h"

namespace scatterlm {
std::string describe_model(const Config& config) {
  const auto size = nn::model_size(config.model);
  return fmt::format("{} parameters, {} active, {} FLOPs per token", format_count(static_cast<double>(size.total)),
                     format_count(static_cast<double>(size.active)),
                     format_count(nn::flops_per_token(config.model, config.train.sequence_length)));
}

std::optional<PeakFlops> peak_bfloat16(std::string_view gpu_name) {
  struct Entry {
    std::string_view name;
    PeakFlops peak;
  };
  static constexpr std::string_view kMeasured = "measured with a large GEMM", kDataSheet = "data sheet";
  // Whole names, but for those that end in '-'. H100 and H200 have the same tensor cores; their data sheet says 989,
  // which no GEMM reaches within the power limit.
  static constexpr Entry kEntries[] = {
      {"NVIDIA H200", {723e12, kMeasured}},
      {"NVIDIA H100 80GB HBM3", {723e12, kMeasured}},
      {"NVIDIA H100 PCIe", {756e12, kDataSheet}},
      {"NVIDIA B200", {2250e12, kDataSheet}},
      {"NVIDIA A100-", {312e12, kDataSheet}},
      {"NVIDIA A100 80GB PCIe", {312e12, kDataSheet}},
      {"NVIDIA A40", {149.7e12, kDataSheet}},
      {"NVIDIA L40S", {362e12, kDataSheet}},
      {"NVIDIA L4", {121e12, kDataSheet}},
      {"NVIDIA GeForce RTX 5090", {209.5e12, kDataSheet}},
      {"NVIDIA GeForce RTX 4090", {165.2e12, kDataSheet}},
      {"NVIDIA GeForce RTX 3090", {71e12, kDataSheet}},
  };
  for (const Entry& entry : kEntries) {
    const bool family = entry.name.ends_with('-') && gpu_name.starts_with(entry.name);
    if (family || gpu_name == entry.name) return entry.peak;
  }
  return std::nullopt;
}

}  // namespace scatterlm

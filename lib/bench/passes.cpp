#include "lib/bench/passes.h"

#include <fmt/format.h>

#include "lib/bench/figure.h"
#include "lib/bench/layers.h"

namespace scatterlm::bench {

using nlohmann::ordered_json;

std::vector<Pass> both_passes(const std::string& other, const std::function<void()>& forward,
                              const std::function<void()>& forward_backward, const OpWork& work) {
  return {{other, "fwd", forward, work.forward, work.forward_bound_ms},
          {other, "fwdbwd", forward_backward, work.training, work.training_bound_ms}};
}

std::vector<Pass> all_of(const std::vector<std::vector<Pass>>& lists) {
  std::vector<Pass> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

std::string time_passes(const std::vector<Pass>& passes, const Conditions& conditions, ordered_json& row) {
  std::vector<Variant> variants;
  for (const auto& pass : passes) variants.push_back({pass.run});
  const auto times = time_interleaved(variants, conditions.rounds, conditions.machine.device);
  std::vector<Figure> figures;
  for (size_t i = 0; i < passes.size(); ++i) {
    const auto& [other, name, run, work, bound_ms] = passes[i];
    figures.push_back({.name = other.empty() ? name : name + ", " + other, .ms = times[i], .work = work, .bound_ms = bound_ms});
    const auto json = to_json(figures.back(), conditions.machine.ceilings);
    if (!other.empty()) row[other][name] = json;
    if (other.empty())
      for (const auto& [key, value] : json.items()) row[name + "_" + key] = value;
  }
  return format_figures(figures, conditions.machine.ceilings);
}

std::string measure_resources(const Forward& forward, const Variant& layers, at::Device device, ordered_json& row) {
  if (!device.is_cuda()) {
    row.update({{"saved_mib", nullptr}, {"peak_mib", nullptr}, {"host_us", nullptr}});
    return "";
  }
  const auto memory = memory_use(forward, device);
  const double host_us = enqueue_us(layers, device) / kNumLayers;
  row.update({{"saved_mib", memory.saved_mib}, {"peak_mib", memory.peak_mib}, {"host_us", host_us}});
  return fmt::format("saved {:.0f} MiB, peak {:.0f} MiB, host {:.0f} us\n", memory.saved_mib, memory.peak_mib, host_us);
}

}  // namespace scatterlm::bench

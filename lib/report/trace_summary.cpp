#include "lib/report/trace_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

namespace scatterlm {
namespace {

constexpr size_t kKernelsInFile = 20;

bool is_collective(const TracedWork& work) {
  return work.name.starts_with("nccl") || work.name.find("ncclDevKernel") != work.name.npos ||
         work.name.starts_with("Memcpy PtoP");
}

/// Streams that collectives use: what else is in them, such as the copy of a rank's own part, belongs to them.
std::set<int64_t> lanes_of_collectives(const std::vector<TracedWork>& work) {
  std::set<int64_t> lanes;
  for (const TracedWork& w : work) {
    if (is_collective(w)) lanes.insert(w.lane);
  }
  return lanes;
}

/// Time in which any work was under way that `counts`.
template <class Counts>
double covered_ms(const std::vector<TracedWork>& by_begin, Counts counts) {
  int64_t covered_ns = 0, end_ns = 0;
  for (const TracedWork& work : by_begin) {
    if (!counts(work) || work.end_ns <= end_ns) continue;
    covered_ns += work.end_ns - std::max(work.begin_ns, end_ns);
    end_ns = work.end_ns;
  }
  return static_cast<double>(covered_ns) / 1e6;
}

/// Per name, with the time of work inside other work of its lane counted once, for the inner.
std::vector<KernelTime> time_by_name(const std::vector<TracedWork>& by_begin) {
  std::map<std::string, KernelTime> times;
  std::map<int64_t, std::vector<const TracedWork*>> open;  // per lane, outer before inner
  for (const TracedWork& work : by_begin) {
    auto& around = open[work.lane];
    while (!around.empty() && around.back()->end_ns < work.end_ns) around.pop_back();
    const double ms = static_cast<double>(work.end_ns - work.begin_ns) / 1e6;
    auto& time = times[work.name];
    time.name = work.name;
    time.calls++;
    time.ms += ms;
    if (!around.empty()) times[around.back()->name].ms -= ms;
    around.push_back(&work);
  }
  std::vector<KernelTime> sorted;
  for (auto& [name, time] : times) sorted.push_back(std::move(time));
  std::ranges::stable_sort(sorted, std::greater{}, &KernelTime::ms);
  return sorted;
}

}  // namespace

TraceSummary summarise(const Trace& trace) {
  auto work = trace.work;
  std::ranges::sort(work, {}, [](const TracedWork& w) { return std::tuple(w.begin_ns, -w.end_ns); });  // outer before inner
  const auto lanes = lanes_of_collectives(work);
  const auto collective = [&](const TracedWork& w) { return lanes.contains(w.lane); };
  TraceSummary summary;
  summary.busy_ms = covered_ms(work, [](const auto&) { return true; });
  summary.compute_ms = covered_ms(work, [&](const auto& w) { return !collective(w); });
  summary.collectives_ms = covered_ms(work, collective);
  summary.exposed_ms = summary.busy_ms - summary.compute_ms;
  summary.idle_ms = trace.wall_ms - summary.busy_ms;
  summary.kernels = time_by_name(work);
  return summary;
}

std::string trace_line(const Trace& trace, const TraceSummary& summary) {
  const std::string collectives =
      summary.collectives_ms > 0
          ? fmt::format(", collectives {:.1f} ms, of which {:.1f} ms exposed", summary.collectives_ms, summary.exposed_ms)
          : "";
  return fmt::format("step {} traced: {:.1f} ms, {} busy {:.0f} %{}; {}", trace.step, trace.wall_ms,
                     trace.device == "CPU" ? "CPU" : "GPU", 100 * summary.busy_ms / trace.wall_ms, collectives, trace.path);
}

std::string trace_json(const Trace& trace, const TraceSummary& summary) {
  auto kernels = nlohmann::ordered_json::array();
  for (const KernelTime& kernel : summary.kernels) {
    if (kernels.size() == kKernelsInFile) break;
    kernels.push_back(
        {{"name", kernel.name}, {"calls", kernel.calls}, {"ms", kernel.ms}, {"percent", 100 * kernel.ms / trace.wall_ms}});
  }
  return nlohmann::ordered_json{{"step", trace.step},
                                {"device", trace.device},
                                {"wall_ms", trace.wall_ms},
                                {"busy_ms", summary.busy_ms},
                                {"compute_ms", summary.compute_ms},
                                {"collectives_ms", summary.collectives_ms},
                                {"exposed_ms", summary.exposed_ms},
                                {"idle_ms", summary.idle_ms},
                                {"kernels", std::move(kernels)}}
             .dump(2) +
         "\n";
}

}  // namespace scatterlm

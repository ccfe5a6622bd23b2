// Passes of an op and of what it is compared with, timed in turn.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lib/bench/bench.h"
#include "lib/bench/work.h"

namespace scatterlm::bench {

struct Pass {
  std::string rival;  ///< "aten", "dense"; empty: ours
  std::string name;   ///< "fwd", "fwdbwd"
  std::function<void()> run;
  Work work;
  std::optional<double> bound_ms;  ///< the roofline's; nothing on a CPU
};

/// What an op has to do, and how soon it could be done.
struct OpWork {
  Work forward, training;
  std::optional<double> forward_bound_ms, training_bound_ms;
};

/// Of products without experts: `forward_flops`, and twice that in backward.
OpWork dense_work(double forward_flops, const std::optional<Ceilings>& ceilings);

/// "fwd" and "fwdbwd".
std::vector<Pass> both_passes(const std::string& rival, const std::function<void()>& forward,
                              const std::function<void()>& forward_backward, const OpWork& work);

/// Adds their figures to the row, ours as fwd_ms, fwd_tflops and so on, a rival's below its name; returns them as a table.
std::string time_passes(const std::vector<Pass>& passes, const Conditions& conditions, nlohmann::ordered_json& row);

/// Adds saved_mib, peak_mib and host_us (to enqueue both passes) to the row, null on a CPU; returns them as a line, empty on a
/// CPU.
std::string measure_resources(const std::function<at::Tensor()>& forward,
                              const std::function<void(const at::Tensor&)>& backward, at::Device device,
                              nlohmann::ordered_json& row);

}  // namespace scatterlm::bench

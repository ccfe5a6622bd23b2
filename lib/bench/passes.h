// Passes of an op and of what it is compared with, timed in turn.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lib/bench/bench.h"
#include "lib/bench/timer.h"
#include "lib/bench/work.h"

namespace scatterlm::bench {

struct Pass {
  std::string other;  ///< "aten", "dense", another form of ours; empty: the op itself
  std::string name;   ///< "fwd", "fwdbwd"
  std::function<void()> run;
  Work work;
  std::optional<double> bound_ms;  ///< the roofline's; nothing on a CPU
};

/// "fwd" and "fwdbwd" of one.
std::vector<Pass> both_passes(const std::string& other, const std::function<void()>& forward,
                              const std::function<void()>& forward_backward, const OpWork& work);

std::vector<Pass> all_of(const std::vector<std::vector<Pass>>& lists);

/// Adds their figures to the row, the op's as fwd_ms, fwd_tflops and so on, others' below their names; returns them as a table.
std::string time_passes(const std::vector<Pass>& passes, const Conditions& conditions, nlohmann::ordered_json& row);

/// Adds saved_mib and peak_mib of `forward` and its backward to the row, and host_us: the host's time to enqueue `layers`, for
/// each of kNumLayers (layers.h). `layers` is forward of all one after another, where they chain, then one backward through
/// all: in a model, too, autograd's thread is asked once, not once a layer. Null on a CPU. Returns them as a line, empty on a
/// CPU.
std::string measure_resources(const Forward& forward, const Variant& layers, at::Device device, nlohmann::ordered_json& row);

}  // namespace scatterlm::bench

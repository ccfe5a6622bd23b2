// What a trace says about a step: how busy the device was, and how far collectives hid behind computation.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "lib/train/tracer.h"

namespace scatterlm {

/// All work of one name.
struct KernelTime {
  std::string name;
  int64_t calls = 0;
  double ms = 0;  ///< without the time of work inside it: operators of a CPU call each other
};

/// Times in which at least one piece of that work was under way, whatever the stream.
struct TraceSummary {
  double busy_ms = 0;               ///< any work
  double compute_ms = 0;            ///< any but collectives
  double collectives_ms = 0;        ///< kernels of NCCL, which also spin until the last rank has come, and copies between GPUs
  double exposed_ms = 0;            ///< nothing but collectives
  double idle_ms = 0;               ///< nothing
  std::vector<KernelTime> kernels;  ///< longest first
};

TraceSummary summarise(const Trace& trace);

/// "step 12 traced: 340.1 ms, GPU busy 99 %, collectives 130.2 ms, of which 8.4 ms exposed; runs/a/trace_step_00000012.json";
/// nothing of collectives where there were none.
std::string trace_line(const Trace& trace, const TraceSummary& summary);

/// {step, device, wall_ms, busy_ms, compute_ms, collectives_ms, exposed_ms, idle_ms, kernels: the longest 20, [{name, calls,
/// ms, percent}]}. Percent are of wall_ms; kernels of several streams may add up to more than 100.
std::string trace_json(const Trace& trace, const TraceSummary& summary);

}  // namespace scatterlm

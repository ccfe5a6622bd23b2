// A profiler trace of one training step.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace scatterlm {

/// Something that a device did: a kernel, a copy; on a CPU an operator.
struct TracedWork {
  std::string name;
  int64_t begin_ns = 0, end_ns = 0;
  int64_t lane = 0;  ///< stream of the GPU, thread of the CPU
};

struct Trace {
  int64_t step = 0;
  std::string device;  ///< "CPU" or the GPU's name
  double wall_ms = 0;  ///< from one cut to the other; the device stood still at both
  std::vector<TracedWork> work;
  std::string path;  ///< of the whole trace, for Perfetto or chrome://tracing
};

/// Traces one whole period of training, cut before the update, where nothing overlaps: the update of the step before and its
/// gathers of parameters during the forward pass, then forward, backward and reductions of the step itself. What is reported,
/// evaluated or saved between the two steps is inside as well. The profiler starts up one step earlier.
class Tracer {
 public:
  /// `step` 0 traces nothing. Says so if `steps_done`, where this process begins, is too late.
  Tracer(int64_t step, int64_t steps_done, at::Device device, const std::string& run_dir);
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  /// To be called in every step, before its update. In the traced one it waits for the device, writes
  /// RUN_DIR/trace_step_00000012.json and returns what happened since the cut before; this takes seconds. Throws Error "PATH:
  /// cannot write: REASON".
  std::optional<Trace> before_update(int64_t step);

 private:
  void prepare() const;
  void begin();
  Trace end();

  int64_t step_;
  at::Device device_;
  std::string path_;
  bool tracing_ = false;
  int64_t begin_ns_ = 0;
};

}  // namespace scatterlm

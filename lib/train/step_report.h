// What one logged step says about itself. The trainer fills it; report prints it.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/distributed/comm.h"
#include "lib/tasks/score_task.h"

namespace scatterlm {

/// Load of one router over a whole optimiser step.
struct RouterReport {
  std::string name;          ///< "layers.3.mlp", "layers.3.attention"
  double load_max_mean = 1;  ///< busiest expert / mean
  double load_limit = 0;     ///< the largest that can be: E / K, when one expert takes every token
  int64_t num_experts = 1;
  int64_t dead_experts = 0;   ///< experts without a token
  double entropy = 0;         ///< of the mean probabilities, nats
  double drop = 0;            ///< pairs that token rounding dropped, as a share of those that the router chose
  double fill = 0;            ///< pairs that it added, likewise
  double aux_loss = 0;        ///< 1 at perfect balance, before its coefficient
  double z_loss = 0;          ///< before its coefficient
  std::vector<double> loads;  ///< of every expert / mean
};

struct StepReport {
  int64_t step = 0, total_steps = 0;
  int64_t tokens = 0;            ///< trained so far
  double loss = 0;               ///< mean cross-entropy, nats per token; never includes aux or z
  double aux_loss = 0;           ///< load balancing loss, mean over routers, 1 at perfect balance, before the coefficient
  bool balanced_by_loss = true;  ///< training uses that loss (balance: aux); otherwise the console leaves it out
  double z_loss = 0;             ///< mean over routers, before the coefficient
  double grad_norm = 0;          ///< before clipping
  double lr = 0;
  double step_ms = 0;  ///< mean since the last report
  double tok_s = 0;
  double flops_per_token = 0;   ///< model FLOPs of forward and backward from active parameters
  std::optional<double> mfu;    ///< against the peak named in the log; only where the peak is known
  double mem_gib = 0;           ///< peak: device memory on a GPU, resident memory on a CPU
  int64_t alloc_retries = 0;    ///< of the GPU's allocator so far
  double load_max_mean = 1;     ///< worst layer
  int64_t nonfinite_steps = 0;  ///< skipped so far
  int64_t nonfinite_row = 0;    ///< most of them in a row since the last report
  std::vector<RouterReport> routers;
  std::optional<double> val_loss;  ///< nats per token
  std::optional<double> val_bpb;   ///< bits per byte of text, where the tokenizer is known
  std::vector<TaskResult> tasks;   ///< empty where none was evaluated
  double save_stall_ms = 0;        ///< training stood still for checkpoints since the last report
  std::optional<CommTimes> comm;   ///< of several ranks: what this one's collectives took, mean per step since the last report

  /// For a message on steps that are not finite: the first router whose logits were not, in the step reported; or nothing.
  std::string first_broken_router() const {
    const auto broken = std::find_if(routers.begin(), routers.end(), [](const auto& r) { return !std::isfinite(r.z_loss); });
    return broken == routers.end() ? "" : " (first in the router of " + broken->name + ")";
  }
};

}  // namespace scatterlm

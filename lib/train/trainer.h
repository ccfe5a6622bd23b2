// The optimiser step.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "lib/config/config.h"
#include "lib/data/loader.h"
#include "lib/distributed/comm.h"
#include "lib/nn/model.h"
#include "lib/optim/optimizer.h"
#include "lib/parallel/gradient_reducer.h"
#include "lib/train/step_report.h"

namespace scatterlm {

/// Sequences of one forward pass on one rank.
int64_t sequences_per_pass(const TrainConfig& config, int64_t world = 1);

/// What to warn of: token rounding with so few rows per expert that it changes what is learnt. Perplexity stays within 0.1 from
/// two tiles on and is clearly worse at one (Guo et al., arXiv 2512.14080, section 6).
std::optional<std::string> rounding_warning(const Config& config, int64_t world);

class Trainer {
 public:
  Trainer(const Config& config, Comm& comm, nn::Model& model, Optimizer& optimizer, Loader& loader);

  /// One optimiser step over the global batch. Only enqueues on a GPU: nothing here waits for the device. `before_update` is
  /// called on the host when the update is the next to enqueue. It needs the norm of all reduced gradients, so the device
  /// overlaps nothing here, and one that waits costs no overlap.
  void step(const std::function<void()>& before_update = {});

  /// Statistics of the last step (times and memory are the caller's), and the longest row of skipped steps since the last
  /// report.
  StepReport report();

  int64_t steps() const { return steps_; }
  int64_t total_steps() const { return total_steps_; }
  int64_t tokens() const { return steps_ * config_.train.global_batch_tokens; }

  /// Counters and data position, for a checkpoint; the tensors are in training_slices().
  nlohmann::json state() const;
  void load_state(const nlohmann::json& state);

 private:
  at::Tensor accumulate_gradients();

  const Config& config_;
  Comm& comm_;
  nn::Model& model_;
  Optimizer& optimizer_;
  Loader& loader_;
  GradientReducer gradients_;
  int64_t total_steps_;
  int64_t steps_ = 0;
  at::Tensor loss_;       ///< [1] fp64: mean cross-entropy of the last step
  at::Tensor grad_norm_;  ///< [1] fp32
  at::Tensor nonfinite_;  ///< [3] fp64: steps skipped in all, in the present row, in the longest row since the last report
};

}  // namespace scatterlm

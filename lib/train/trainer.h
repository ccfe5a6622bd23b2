// The optimiser step.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lib/train/batch_plan.h"
#include "lib/train/router_losses.h"
#include "lib/train/step_report.h"
#include "lib/train/training_state.h"

namespace scatterlm {

/// What to warn of: token rounding with so few rows per expert that it changes what is learnt, with so many tokens in a forward
/// pass of one rank. Perplexity stays within 0.1 from two tiles on and is clearly worse at one (Guo et al., arXiv 2512.14080,
/// section 6).
std::optional<std::string> rounding_warning(const ModelConfig& config, int64_t tokens_per_pass);

class Trainer {
 public:
  explicit Trainer(TrainingState& state);

  /// One optimiser step over the global batch. Only enqueues on a GPU: nothing here waits for the device. `before_update` is
  /// called on the host when the update is the next to enqueue. It needs the norm of all reduced gradients, so the device
  /// overlaps nothing here, and one that waits costs no overlap.
  void step(const std::function<void()>& before_update = {});

  /// Statistics of the last step (times and memory are the caller's), and the longest row of skipped steps since the last
  /// report.
  StepReport report();

 private:
  Batch next_batch();
  at::Tensor accumulate_gradients();

  TrainingState& state_;
  const Config& config_;
  Comm& comm_;
  nn::Model& model_;
  Loader& loader_;
  GradientReducer& gradients_;
  RouterLosses router_losses_;
  BatchPlan plan_;
  at::Tensor loss_;       ///< [1] fp64: mean cross-entropy of the last step
  at::Tensor grad_norm_;  ///< [1] fp32
};

}  // namespace scatterlm

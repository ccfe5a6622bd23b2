#pragma once
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lib/config/config.h"
#include "lib/data/loader.h"
#include "lib/distributed/comm.h"
#include "lib/nn/model.h"
#include "lib/optim/optimizer.h"
#include "lib/parallel/gradient_reducer.h"
#include "lib/train/skipped_steps.h"

namespace scatterlm {

/// All that training changes, and what it works with: trainer, checkpoints and the training loop share one. Configuration,
/// communicator and loader are the caller's and outlive it.
struct TrainingState {
  /// A model with the dtype and device of `options`; its weights are zero until begin_training().
  TrainingState(const Config& config, at::TensorOptions options, Comm& comm, Loader& loader);
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;

  const Config& config;
  Comm& comm;
  Loader& loader;
  nn::Model model;
  std::unique_ptr<Optimizer> optimizer;
  GradientReducer gradients;
  SkippedSteps skipped;
  std::map<std::string, std::string> files;  ///< that checkpoints hold a copy of, by name: files_of_run()
  int64_t steps = 0;                         ///< optimiser steps made, the skipped ones too

  int64_t total_steps() const;                                                 ///< of the whole run
  int64_t tokens() const { return steps * config.train.global_batch_tokens; }  ///< trained so far

  /// Counters and data position, for a checkpoint, in addition to the tensors. counters() waits for the device.
  nlohmann::json counters() const;
  /// Throws Error "WHERE: ..." for what counters() of a run of this configuration would not give at that step.
  void load_counters(const nlohmann::json& counters, int64_t step, const std::string& where);
};

}  // namespace scatterlm

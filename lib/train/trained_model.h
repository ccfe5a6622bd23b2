#pragma once
#include <memory>
#include <optional>
#include <string>

#include "lib/config/config.h"
#include "lib/nn/model.h"
#include "lib/tokenizer/tokenizer_files.h"
#include "lib/train/execution_setup.h"

namespace scatterlm {

/// A model out of a checkpoint, ready to run on this machine's best device.
struct TrainedModel {
  std::string checkpoint;  ///< folder it came from
  Config config;           ///< as it was trained
  ExecutionSetup numerics;
  std::unique_ptr<nn::Model> model;
  TokenizerFiles tokenizer;  ///< the checkpoint's
};

/// `path` is a run folder or a checkpoint folder. On a CPU it runs with `threads` threads (0 = all cores); by default with
/// train.threads of its configuration, or all cores if they are fewer. Each rank of `world` loads the whole model. Throws Error
/// (exit code 2) if there is no good checkpoint.
TrainedModel load_trained_model(const std::string& path, std::optional<int64_t> threads = {}, const LaunchEnv& world = {});

}  // namespace scatterlm

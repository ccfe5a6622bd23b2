#pragma once
#include <memory>
#include <string>

#include "lib/config/config.h"
#include "lib/nn/model.h"
#include "lib/train/execution_setup.h"

namespace scatterlm {

/// A model out of a checkpoint, ready to run on this machine's best device.
struct TrainedModel {
  std::string checkpoint;  ///< folder it came from
  Config config;           ///< as it was trained
  ExecutionSetup numerics;
  std::unique_ptr<nn::Model> model;
};

/// `path` is a run folder or a checkpoint folder. Throws Error (exit code 2) if there is no good checkpoint.
TrainedModel load_trained_model(const std::string& path);

}  // namespace scatterlm

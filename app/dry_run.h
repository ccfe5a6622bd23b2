// `train --dry-run`: everything that a training checks before its first step, and the sizes, without the memory for it.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "lib/config/config.h"
#include "lib/data/loader.h"
#include "lib/distributed/comm.h"
#include "lib/io/checkpoint.h"
#include "lib/train/checkpointing.h"
#include "lib/train/execution_setup.h"

namespace scatterlm {

struct DryRun {
  const Config& config;
  const ExecutionSetup& setup;
  const LaunchEnv& world;
  Comm& comm;
  const Loader& loader;
  const std::optional<CheckpointReader>& checkpoint;  ///< that the run would go on from
  const std::optional<InitialWeights>& initial;       ///< whose weights it would start from
};

/// Checks that the checkpoint fits the model and the data, and tells `phase` the sizes by name. Warns if the memory of this
/// machine is too small. Works from shapes: a model of any size takes no memory and less than a second.
void dry_run(const DryRun& run, const std::function<void(const char*, const std::string&)>& phase);

}  // namespace scatterlm

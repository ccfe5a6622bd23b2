// A training run of this process, which `train` makes, and `compare` several of.
#pragma once
#include "app/train_options.h"
#include "lib/config/config.h"
#include "lib/util/error.h"

namespace scatterlm {

/// Trains in the run's folder from its newest checkpoint, or from the start, until all steps are made (kExitDone) or until it
/// is asked to stop (kExitRestart). Of the options all but `config` and `sets` count. Every rank calls it. Throws Error.
ExitCode run_training(const Config& config, const TrainOptions& options);

}  // namespace scatterlm

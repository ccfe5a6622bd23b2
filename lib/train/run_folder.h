#pragma once
#include <optional>
#include <string>

#include "lib/config/config.h"
#include "lib/io/checkpoint.h"

namespace scatterlm {

/// Folder of a run: `override_dir` if given, else run.dir/run.name.
std::string run_folder(const RunConfig& config, const std::string& override_dir);

/// The checkpoint that --resume names: auto (the run's newest good one, if it has any), none, or a folder. Throws Error if the
/// run folder holds a later checkpoint than that, which training on would contradict. A run that its launcher has started anew
/// (`restarted`) goes on from what it saved before, if it had come that far.
std::optional<CheckpointReader> checkpoint_to_resume(const std::string& run_dir, const std::string& resume, bool restarted);

/// What must be the same on every rank of a run: program, options, every key; one a line.
std::string run_identity(const Config& config, const std::string& override_dir, const std::string& resume);

}  // namespace scatterlm

// That a run goes on with the data it began with, and that all ranks have the same.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lib/data/loader.h"
#include "lib/io/checkpoint.h"

namespace scatterlm {

/// For a checkpoint's state, as `data_files`.
nlohmann::json to_json(const std::vector<FileFingerprint>& files);

/// Throws Error (exit code 2) naming the files if they are others than those the checkpoint was trained on: the position in the
/// data would then stand for other samples. With `allow_change` that is a warning. A checkpoint without `data_files` fits any.
void check_same_data(const CheckpointReader& reader, const std::vector<FileFingerprint>& files, bool allow_change);

/// Part of what must be the same on every rank of a run (run_identity): the training files and, if any, the validation files,
/// one a line.
std::string data_identity(const Loader& loader, const EvalReader* validation);
std::string data_identity(const EvalReader& validation);

}  // namespace scatterlm

// The newest checkpoint that can be read.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "lib/distributed/comm.h"
#include "lib/io/checkpoint.h"

namespace scatterlm {

/// The newest checkpoint of a list that all ranks can read, and those that are newer.
struct NewestCheckpoint {
  CheckpointReader reader;
  std::vector<std::string> rejected;
};

/// Rank 0's list counts, by ascending step (find_checkpoints). Together the ranks hash every file once; one that is damaged for
/// any rank is passed over by all, with a message. Nothing if the list is empty. Throws Error if none can be read, if the
/// storage fails, or if another rank does not see the folder. All ranks call it; `device`: that of the ranks' tensors.
std::optional<NewestCheckpoint> open_newest_checkpoint(std::vector<std::string> paths, Comm& comm, at::Device device);

/// The checkpoint folder, or the newest checkpoint of a run folder that can be read, on a single rank.
CheckpointReader open_checkpoint(const std::string& path);

}  // namespace scatterlm

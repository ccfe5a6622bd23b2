// Which checkpoint a path means, and the newest one that can be read.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "lib/distributed/comm.h"
#include "lib/io/checkpoint.h"

namespace scatterlm {

/// The checkpoint folder `path` itself, or the checkpoints of the run folder `path`, newest first. Throws Error if there is
/// none.
std::vector<std::string> checkpoints_of(const std::string& path);

/// The first checkpoint of a list that all ranks can read, and those before it.
struct NewestCheckpoint {
  CheckpointReader reader;
  std::vector<std::string> rejected;
};

/// Rank 0's list counts, newest first. Together the ranks hash every file once; one that is damaged for any rank is passed over
/// by all, with a message. Nothing if the list is empty. Throws Error if none can be read, if the storage fails, or if another
/// rank does not see the folder. All ranks call it; `device`: that of the ranks' tensors.
std::optional<NewestCheckpoint> open_newest_checkpoint(const std::vector<std::string>& newest_first, Comm& comm,
                                                       at::Device device);

/// The checkpoint folder, or the newest checkpoint of a run folder that can be read, on a single rank.
CheckpointReader open_checkpoint(const std::string& path);

}  // namespace scatterlm

// Starts the ranks of one machine as processes and watches them until they have ended.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace scatterlm {

struct LaunchOptions {
  std::vector<std::string> arguments;  ///< command line of every rank, which runs this same program
  int64_t ranks = 1;
  int64_t max_restarts = 0;  ///< how often all ranks are started again after a failure
};

/// Prints each line of a rank with the rank's number in front, and passes on signals to stop. When a rank fails, the others
/// have 2 s to say why they end too, then they are killed; if this process dies, so do they. Returns the exit code of the rank
/// that failed first by itself (kExitFailure for one that a signal has ended), kExitRestart if a rank asks for the same command
/// to be run again, or kExitDone.
int launch(const LaunchOptions& options);

}  // namespace scatterlm

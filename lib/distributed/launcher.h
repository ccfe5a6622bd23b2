// Starts the ranks of one machine as processes and watches them until they have ended.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace scatterlm {

struct LaunchOptions {
  std::vector<std::string> arguments;  ///< command line of every rank, which runs this same program
  int64_t ranks = 1;
  int64_t max_restarts = 0;         ///< how often all ranks are started again after a failure
  double timeout_s = 300;           ///< parallel.timeout_s of the ranks
  double storage_timeout_s = 1800;  ///< checkpoint.timeout_s of the ranks
  bool only_prints = false;         ///< the ranks' output is all that the command is for: losing some of it is a failure
};

/// Prints each line of a rank with the rank's number in front, and passes on signals to stop, to ranks that are stopped
/// (SIGSTOP) as well. If this process dies, so do the ranks.
///
/// Ranks end in bounded time, or are killed: 2 s after another one has failed, in which they say why they end too; timeout_s +
/// storage_timeout_s after another one has ended well, or after a signal to stop; when they have been stopped for timeout_s +
/// 5 s; and at a second Ctrl-C. A rank that does not even end then is named after 30 s and left behind.
///
/// Returns the exit code of the rank that failed first by itself (kExitFailure for one that a signal has ended or that had to
/// be killed), kExitRestart if a rank asks for the same command to be run again, or kExitDone; 130 after a second Ctrl-C.
int launch(const LaunchOptions& options);

}  // namespace scatterlm

// Starts the ranks of one machine as processes and stays with them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace scatterlm {

struct LaunchOptions {
  std::vector<std::string> arguments;  ///< of this same program, in every rank
  int64_t ranks = 1;                   ///< on this machine
  int64_t nodes = 1, node_rank = 0;    ///< machines, each with a launcher and as many ranks
  std::string address = "127.0.0.1";   ///< of machine 0, where the ranks meet
  int64_t port = 0;                    ///< likewise; 0 = any free one, if there is only one machine
  int64_t max_restarts = 0;            ///< after failures that the same command may survive
};

/// Each line that a rank prints gets the rank's number in front. Signals to stop are passed on. When a rank fails,
/// the others have a moment to say why they end too, then they are killed; if this process dies, so do they. Launchers of
/// several machines hear of each other's failures and do the same; that of machine 0, which keeps the store, ends last. Returns
/// the exit code of the rank that failed first by itself (a signal: kExitFailure), kExitRestart, or kExitDone.
int launch(const LaunchOptions& options);

}  // namespace scatterlm

#pragma once
#include <csignal>
#include <vector>

namespace scatterlm {

/// Those that ask a run to save and end. Not SIGHUP where it is ignored: that is how nohup keeps a program running.
inline std::vector<int> stop_signals() {
  std::vector<int> result{SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) result.push_back(SIGHUP);
  return result;
}

}  // namespace scatterlm

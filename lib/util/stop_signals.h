// The signals that ask a run to save and end.
#pragma once
#include <atomic>
#include <csignal>
#include <cstdint>
#include <vector>

namespace scatterlm {

/// INT, TERM, USR1, USR2, and HUP except where it is ignored: that is how nohup keeps a program running.
std::vector<int> stop_signals();

/// Holds them back, in threads started from now on and after execve() as well, until the process is ready to deal with them.
void block_stop_signals();
/// Delivers those that were held back. For the main thread; threads started before keep them blocked.
void unblock_stop_signals();

/// Tells whether a user has pressed Ctrl-C a second time.
class Interrupts {
 public:
  /// To be called at every SIGINT; may be called by a signal handler. True from the second one on. One that follows the first
  /// within half a second is the same: `timeout -s INT` signals first the process and then its group.
  bool is_second();

 private:
  std::atomic<int64_t> first_ns_ = 0;  ///< 0: none so far
};
inline constexpr const char* kInterruptedTwice = "interrupted a second time: ends without saving";

}  // namespace scatterlm

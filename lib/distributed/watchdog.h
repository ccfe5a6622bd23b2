// Ends a rank in bounded time when the run can no longer go on, wherever its main thread is.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "lib/distributed/rank_status.h"
#include "lib/distributed/store_link.h"

namespace scatterlm {

/// Seconds that a rank waits in one collective: until all are connected, and from then on.
struct Patience {
  double start_s, step_s;
};

/// A thread that calls neither LibTorch nor CUDA: it shows that this rank lives, and looks whether the others do and whether a
/// collective lasts too long. Then it names the guilty rank, the step and the collective on stderr and ends the process with
/// kExitPeer; ranks that only follow end silently, and ranks that a signal has halted are killed. On several machines one rank
/// of each says why.
class Watchdog {
 public:
  /// All ranks of the machine have written their pid. `machines`: that of each rank. `link` is there if they are several.
  Watchdog(RankStatusTable& board, int64_t rank, const std::vector<int64_t>& machines, Patience patience, StoreLink* link);
  /// This rank needs the others no more; while an exception is on its way: tell_failure().
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// All ranks are connected.
  void started() { started_ = true; }

  /// Around a collective: returns its number, and takes it when that collective and all before it are done.
  uint32_t enter(const Call& call);
  void leave(uint32_t number) { own().done = number; }
  /// Ends the process unless what other ranks have called is what this one has, as far as both have come.
  void compare_calls();

  void set_step(int64_t step) { own().step = step; }

  /// Before this rank ends for a reason of its own: the others end as well. What ends it says why, here is said where all ranks
  /// were, if a step had begun. For a process that cannot throw; otherwise the destructor does it.
  void tell_failure();

 private:
  struct Peer {
    int64_t rank;
    int pidfd;  ///< readable when the process is gone, also before its parent has asked for it; -1 on another machine
  };

  RankStatus& row(int64_t rank) const { return rows_[static_cast<size_t>(rank)]; }
  RankStatus& own() const { return row(rank_); }
  double patience_s() const { return started_ ? patience_.step_s : patience_.start_s; }
  const char* patience_key() const { return started_ ? "parallel.timeout_s" : "parallel.start_timeout_s"; }
  void watch();
  void look_for_the_dead();
  void look_at_other_machines(double passed_s);
  void look_at_the_clock(double passed_s);
  std::string why_nobody_answers(uint32_t number) const;
  std::string difference(int64_t peer, uint32_t number) const;
  /// The first rank to get here tells; all end.
  [[noreturn]] void end(const std::string& reason);
  /// Kills ranks that cannot follow by themselves; not every launcher does.
  void end_the_stopped() const;

  RankStatusTable& board_;
  std::span<RankStatus> rows_;
  int64_t rank_;
  Patience patience_;
  StoreLink* link_;
  std::atomic<bool> started_ = false;
  std::vector<Peer> peers_;
  uint32_t waiting_for_ = 0;  ///< number of the collective that the clock runs for: the first that is not done
  double waited_s_ = 0;       ///< counted in own ticks, so that a paused process does not blame the others
  uint32_t carried_ = 0;      ///< answers of the store
  double silent_s_ = 0;       ///< since the last one, likewise
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace scatterlm

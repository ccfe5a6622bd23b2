// Ends a rank in bounded time when the run can no longer go on, wherever its main thread is.
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "lib/distributed/machine_monitor.h"
#include "lib/distributed/rank_status.h"

namespace scatterlm {

/// Seconds that a rank waits in one collective: until all ranks are connected, from then on, and for ranks that read or write
/// files.
struct Timeouts {
  double start_s, step_s, storage_s;
};

/// A thread that calls neither LibTorch nor CUDA. It writes this rank's heartbeat, and looks whether the other ranks of the
/// machine are alive, whether another machine reports a failure, and whether a collective exceeds its timeout. Then it names
/// the failed rank, and step and collective of all ranks of the machine, on stderr and ends the process with kExitPeer. One
/// rank per machine prints; the others end silently, and those that a signal has stopped are killed.
class Watchdog {
 public:
  /// All ranks of the machine have written their rank and pid. `rows`: those of the table; `own_row`: the index of this rank's.
  /// `monitor`: only on several machines. Throws Error if a rank is already gone.
  Watchdog(RankStatusTable& table, std::span<RankStatus> rows, int64_t own_row, Timeouts timeouts, MachineMonitor* monitor);
  /// Marks this rank as finished; during the unwinding of an exception it calls tell_failure() instead.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// All ranks are connected: from now on the timeout of a step holds.
  void started() { started_ = true; }

  /// To be called before a collective. Returns its number, which leave() takes when that collective and all before it have
  /// ended.
  uint32_t enter(const Call& call);
  void leave(uint32_t number) { own_.done = number; }
  /// Ends the process unless all ranks of this machine have made the same calls, as far as both this rank and the other have
  /// come.
  void compare_calls();

  void set_step(int64_t step) { own_.step = step; }

  /// To be called before this rank ends for a reason of its own, which it prints itself: the other ranks end too. Prints where
  /// all ranks of the machine were, if a step had begun. For a process that cannot throw; otherwise the destructor does it.
  void tell_failure();

 private:
  struct Peer {
    const RankStatus* status;
    int pidfd;  ///< readable once the process is gone, even before its parent has waited for it
  };

  double timeout_s() const { return started_ ? timeouts_.step_s : timeouts_.start_s; }
  const char* timeout_key() const { return started_ ? "parallel.timeout_s" : "parallel.start_timeout_s"; }
  void watch();
  void check_processes();
  void check_other_machines(double passed_s);
  void check_timeout(double passed_s);
  std::optional<std::string> late_rank(uint32_t number) const;
  /// Whether all ranks that are late for this collective run and read or write files; false if there is none.
  bool awaits_storage(uint32_t number) const;
  std::string why_other_machines_are_late(uint32_t number) const;
  std::string difference(const RankStatus& peer, uint32_t number) const;
  /// The first rank of the machine to call it prints the reason; all end.
  [[noreturn]] void end(const std::string& reason);
  /// Kills ranks that cannot end by themselves: torchrun does that after 30 s, srun never.
  void kill_halted_ranks() const;

  RankStatusTable& table_;
  std::span<RankStatus> rows_;
  RankStatus& own_;
  Timeouts timeouts_;
  MachineMonitor* monitor_;
  std::atomic<bool> started_ = false;
  std::vector<Peer> peers_;          ///< the other ranks of the machine
  uint32_t waiting_for_ = 0;         ///< number of the collective that the timeout runs for: the first that is not done
  double waited_s_ = 0;              ///< counted in own ticks, so that a process that was paused does not blame the others
  double waited_for_storage_s_ = 0;  ///< likewise, while awaits_storage(); waited_s_ stands still then
  uint64_t store_answers_ = 0;
  double store_silent_s_ = 0;  ///< since the store's last answer, counted likewise
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace scatterlm

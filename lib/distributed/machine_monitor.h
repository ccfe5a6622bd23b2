// Failure detection between machines through the TCPStore: one abort key for all, and one heartbeat per machine.
#pragma once
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/distributed/store_messages.h"

namespace c10d {
class Store;
}

namespace scatterlm {

/// A thread in every rank that asks the store every 100 ms for the abort key, which holds the reason why the run ends: the
/// first rank to write it wins. Every 500 ms it reads the heartbeats of the other machines, and one rank of each machine writes
/// that of its own. A call to a store that is stopped or out of reach never returns, so only this thread makes such calls, over
/// a connection of its own; the functions below never wait longer than they say.
class MachineMonitor {
 public:
  struct Options {
    c10::intrusive_ptr<c10d::Store> store;  ///< used by nobody else
    std::string store_owner;                ///< for messages: "rank 0 at node1:29400"
    std::string reporter;                   ///< for messages: "rank 3 on node2"
    std::vector<std::string> machines;      ///< names for messages: "machine 1 (node2, ranks 2, 3)"
    int64_t machine = 0;                    ///< number of this one
    /// What this machine's heartbeat says; nothing if another rank of the machine sends it.
    std::function<std::optional<MachineProgress>()> heartbeat;
    std::function<bool()> machine_finished;  ///< whether all ranks of this machine have ended well
    int64_t await_ranks = 0;                 ///< the rank that keeps the store waits in finish() until so many have left
  };

  explicit MachineMonitor(Options options);
  /// Stops at once.
  ~MachineMonitor();

  /// Why the run ends: the text of the abort key, or that the store is gone.
  std::optional<std::string> failure() const;
  /// A message about the machine whose heartbeat is missing for longest, if that is longer than so many seconds.
  std::optional<std::string> silent_machine(double timeout_s) const;
  /// A message about a rank of another machine that has not called the collective of this number when its machine's last
  /// heartbeat was sent, or has left the run.
  std::optional<std::string> late_rank(uint32_t number) const;
  /// Whether all ranks that late_rank() would name read or write files; false if there is none.
  bool awaits_storage(uint32_t number) const;
  /// How often the store has answered.
  uint64_t answers() const;
  std::string store_owner() const;  ///< "rank 0 at node1:29400, which keeps the store,"

  /// Writes the abort key unless it is known to be there. Returns when it is written, at the latest after a second.
  void abort(const std::string& reason);
  /// For the end of the process after a failure: a rank that keeps the store gives the others half a second to read the key.
  void let_others_read() const;
  /// For a good end. A rank that keeps the store waits until all ranks have left, at most 10 s.
  void finish();

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);
  void stop(std::chrono::seconds timeout);

  std::shared_ptr<State> state_;  ///< shared with the thread, which may outlive this object inside a call that hangs
};

}  // namespace scatterlm

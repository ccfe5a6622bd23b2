#pragma once
#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "lib/distributed/machine_monitor.h"
#include "lib/distributed/rendezvous.h"
#include "lib/distributed/shared_memory.h"
#include "lib/distributed/watchdog.h"

namespace scatterlm {

/// The status table of this machine's ranks in shared memory, with room for their data behind it, and a watchdog over them. On
/// several machines also the connection to the others through the store: failure detection and barriers.
class SharedRankStatus {
 public:
  /// Returns when all ranks of all machines have mapped their table. `machines`: the machine of each rank (topology.h).
  /// `extra_bytes`: zeroed memory that the ranks of a machine share, see extra().
  SharedRankStatus(const CommOptions& options, Rendezvous& rendezvous, const std::vector<int64_t>& machines,
                   size_t extra_bytes);
  ~SharedRankStatus();

  Watchdog& watchdog() { return *watchdog_; }
  /// The ranks of this machine, in order of rank.
  std::span<RankStatus> rows() const { return table().rows(local_size_); }
  RankStatus& own() const { return rows()[static_cast<size_t>(local_rank_)]; }
  std::byte* extra() const { return memory_->data() + table_bytes(); }

  /// Returns when all ranks of all machines have called it as often as this one. The watchdog ends a wait that lasts too long.
  void barrier();
  /// The same for one other thread per rank, without a timeout. Throws Error when it is asked to stop.
  void background_barrier(const std::stop_token& stop);
  /// How often barrier() was called.
  uint32_t barriers() const { return barriers_; }

 private:
  /// The fields of the table that belong to one kind of barrier, and its key in the store.
  struct BarrierKind {
    std::atomic<uint32_t> RankStatus::*reached;
    std::atomic<uint32_t> RankStatusTable::*passed;
    const char* key;
  };
  void barrier(const BarrierKind& kind, uint32_t number, const std::stop_token& stop);
  void await_machines(const BarrierKind& kind, uint32_t number, const std::stop_token& stop);
  void start_monitor(const CommOptions& options, Rendezvous& rendezvous, const std::vector<int64_t>& machines);
  size_t table_bytes() const { return (RankStatusTable::bytes(local_size_) + 4095) / 4096 * 4096; }
  RankStatusTable& table() const { return *reinterpret_cast<RankStatusTable*>(memory_->data()); }

  int64_t num_machines_, local_rank_, local_size_;  ///< the latter two by the table's order
  uint32_t barriers_ = 0, background_barriers_ = 0;
  std::shared_ptr<SharedMemory> memory_;
  std::string store_owner_;
  c10::intrusive_ptr<c10d::Store> store_;  ///< on several machines, for barriers; with it the store stays where rank 0 keeps it
  std::optional<MachineMonitor> monitor_;  ///< on several machines
  std::optional<Watchdog> watchdog_;       // after the memory and the monitor, which it uses
};

}  // namespace scatterlm

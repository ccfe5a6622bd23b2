#pragma once
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "lib/distributed/rendezvous.h"
#include "lib/distributed/shared_memory.h"
#include "lib/distributed/watchdog.h"

namespace scatterlm {

/// The board of this machine's ranks, with memory for them behind it and a watchdog over all ranks. If there are several
/// machines, it hears of the others through the store.
class SharedRankStatus {
 public:
  /// Returns when all ranks have their board. `machines`: that of each rank (machine.h).
  SharedRankStatus(const CommOptions& options, Rendezvous& rendezvous, const std::vector<int64_t>& machines,
                   size_t extra_bytes);
  ~SharedRankStatus();

  Watchdog& watchdog() { return *watchdog_; }
  std::span<RankStatus> rows() { return board().rows(world_); }
  std::byte* extra() const { return memory_->data() + board_bytes(); }

  /// Returns when all ranks have called it as often. The watchdog ends a wait in vain.
  void meet();
  /// The same for another thread; throws Error when it is asked to stop.
  void meet_in_background(const std::stop_token& stop);
  uint32_t meetings() const { return meetings_; }

 private:
  void meet(std::atomic<uint32_t> RankStatus::*place, uint32_t meeting, const std::stop_token& stop);
  size_t board_bytes() const { return (RankStatusTable::bytes(world_) + 4095) / 4096 * 4096; }
  RankStatusTable& board() { return *reinterpret_cast<RankStatusTable*>(memory_->data()); }

  int64_t rank_, world_;
  uint32_t meetings_ = 0, background_meetings_ = 0;
  std::shared_ptr<SharedMemory> memory_;
  std::optional<StoreLink> link_;
  std::optional<Watchdog> watchdog_;  // after the memory that it watches
};

}  // namespace scatterlm

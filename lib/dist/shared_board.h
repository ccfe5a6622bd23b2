#pragma once
#include <optional>
#include <stop_token>

#include "lib/dist/rendezvous.h"
#include "lib/dist/shared_memory.h"
#include "lib/dist/watchdog.h"

namespace scatterlm {

/// The board of ranks on one machine, with memory for them behind it and a watchdog over them.
class SharedBoard {
 public:
  /// Returns when all ranks have mapped it.
  SharedBoard(const CommOptions& options, Rendezvous& rendezvous, size_t extra_bytes);

  Watchdog& watchdog() { return *watchdog_; }
  std::span<Row> rows() { return board().rows(world_); }
  std::byte* extra() const { return memory_->data() + board_bytes(); }

  /// Returns when all ranks have called it as often. The watchdog ends a wait in vain.
  void meet();
  /// The same for another thread; throws Error when it is asked to stop.
  void meet_beside(const std::stop_token& stop);
  uint32_t meetings() const { return meetings_; }

 private:
  void meet(std::atomic<uint32_t> Row::*place, uint32_t meeting, const std::stop_token& stop);
  size_t board_bytes() const { return (Board::bytes(world_) + 4095) / 4096 * 4096; }
  Board& board() { return *reinterpret_cast<Board*>(memory_->data()); }

  int64_t rank_, world_;
  uint32_t meetings_ = 0, meetings_beside_ = 0;
  std::optional<SharedMemory> memory_;
  std::optional<Watchdog> watchdog_;  // after the memory that it watches
};

}  // namespace scatterlm

// Carries rows of boards between machines.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/distributed/rank_status.h"
#include "lib/distributed/shared_memory.h"

namespace c10d {
class Store;
}

namespace scatterlm {

/// One in every rank, but one a machine works: that of its first rank with a heartbeat. It puts the rows of its machine into
/// the store and copies those of the other machines to the board, every 100 ms; every 10 ms while ranks meet. Clocks of
/// machines are not compared: heartbeats travel as ages.
class Bridge {
 public:
  /// `machines`: that of each rank. The board is at the beginning of the memory.
  Bridge(std::shared_ptr<SharedMemory> memory, int64_t rank, std::vector<int64_t> machines);

  /// To be called often. True if the store took rows, and gave those that there were. Throws what the store throws.
  bool carry(c10d::Store& store);
  /// The last state of the machine's rows, when its ranks leave.
  void leave(c10d::Store& store);

 private:
  std::string key(int64_t machine) const;
  bool is_on_duty();
  /// Ranks wait at a meeting for others.
  bool is_meeting();
  void send(c10d::Store& store);
  void receive(int64_t machine, const std::vector<uint8_t>& rows);

  std::shared_ptr<SharedMemory> memory_;
  RankStatusTable& board_;
  std::span<RankStatus> rows_;
  int64_t rank_, machine_;
  std::vector<std::vector<int64_t>> ranks_;  ///< of each machine
  std::vector<int64_t> others_;              ///< machines
  std::vector<std::string> keys_;            ///< of their rows
  std::vector<uint64_t> sent_;               ///< when, by its own clock, each machine has sent what came last
  std::chrono::steady_clock::time_point last_;
};

}  // namespace scatterlm

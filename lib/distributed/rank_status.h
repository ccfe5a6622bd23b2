// What the ranks of one machine know of each other: a table in shared memory with one row per rank, which that rank writes.
#pragma once
#include <c10/core/ScalarType.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace scatterlm {

enum class Operation : int8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kBuffer, kBarrier };

/// What a rank asks of a collective. The n-th calls of all ranks must be equal.
struct Call {
  Operation operation = Operation::kBarrier;
  at::ScalarType dtype = at::kFloat;
  int64_t numel = 0;
  bool operator==(const Call&) const = default;
};

std::string describe(const Call& call);  ///< "all_reduce of 128 float32"

/// The n-th call of a rank; n begins at 1.
struct NumberedCall {
  uint32_t number = 0;
  Call call;
  uint64_t chain = 0;  ///< hash of this call and all calls before it: equal on two ranks only if all their calls were

  /// The next call of the same rank.
  NumberedCall next(const Call& call) const;
};

/// A row keeps this many calls. No rank is ever that many calls ahead of another.
inline constexpr uint32_t kCalls = 1024;

/// One row of the table. Only the rank that it describes writes it.
struct RankStatus {
  std::atomic<int64_t> rank;  ///< its number among the ranks of all machines
  std::atomic<int32_t> pid;
  std::atomic<uint64_t> heartbeat;            ///< CLOCK_MONOTONIC in ns when the rank's watchdog last ran
  std::atomic<int64_t> step;                  ///< training step, from 1; 0 before the first
  std::atomic<uint32_t> called, done;         ///< collectives that the rank has entered, and that have ended on it
  std::atomic<uint32_t> barriers;             ///< barriers that its main thread has reached
  std::atomic<uint32_t> background_barriers;  ///< barriers that its checkpoint thread has reached
  std::atomic<int32_t> storage_scopes;        ///< > 0: its main thread reads or writes files
  std::atomic<bool> finished;                 ///< it has ended well and takes part in nothing any more

  /// Stores a call, in place of the one kCalls before it.
  void keep(const NumberedCall& call);
  /// The call of this number, or nothing if the row does not hold it yet, or not any more.
  std::optional<NumberedCall> find(uint32_t number) const;

  /// Seconds since the last heartbeat.
  double age_s() const;
  /// Whether the process is stopped: no heartbeat for a second (a busy machine delays one by tenths). Never of a rank that has
  /// finished.
  bool is_stopped() const { return !finished && age_s() > 1; }

 private:
  struct Place {
    std::atomic<uint32_t> number;
    NumberedCall call;
  };
  std::array<Place, kCalls> calls_;  ///< number n has the place n % kCalls
};

/// The table of one machine. Zero-filled memory is a table in which nothing has happened yet.
struct RankStatusTable {
  std::atomic<bool> reporter_chosen;                 ///< one rank of this machine says why the run ends
  std::atomic<bool> aborted;                         ///< it has said so: the other ranks end silently
  std::atomic<uint32_t> barriers_passed;             ///< barriers that all machines have reached, of main threads
  std::atomic<uint32_t> background_barriers_passed;  ///< likewise, of checkpoint threads
  RankStatus first_row;                              ///< the rows of the machine's other ranks follow, in order of rank

  static size_t bytes(int64_t ranks) { return sizeof(RankStatusTable) + sizeof(RankStatus) * static_cast<size_t>(ranks - 1); }
  std::span<RankStatus> rows(int64_t ranks) { return {&first_row, static_cast<size_t>(ranks)}; }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

uint64_t now_ns();  ///< CLOCK_MONOTONIC in ns

/// Step, collective and age of the heartbeat of every rank of the machine, in one line.
std::string state_of_ranks(std::span<const RankStatus> rows);

}  // namespace scatterlm

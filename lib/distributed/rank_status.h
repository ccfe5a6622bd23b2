// What ranks know of each other: a table in the memory of each machine, one row a rank. Ranks of the machine write their own
// rows; those of other machines are copies that a bridge refreshes.
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

/// The n-th call of a rank, from 1.
struct NumberedCall {
  uint32_t number = 0;
  Call call;
  uint64_t chain = 0;  ///< a hash of this call and all before it: equal only if all were

  NumberedCall next(const Call& call) const;
};

/// A row keeps this many calls. No rank of a machine is ever that many ahead of another; copies may be further behind.
inline constexpr uint32_t kCalls = 1024;

struct RankStatus {
  std::atomic<int32_t> pid;
  std::atomic<uint64_t> heartbeat;  ///< CLOCK_MONOTONIC of this machine, ns: the last tick of the rank's watchdog
  std::atomic<int64_t> step;
  std::atomic<uint32_t> called, done;  ///< collectives that it entered and left
  std::atomic<uint32_t> arrived;       ///< at meeting points
  std::atomic<uint32_t> beside;        ///< at those of another thread
  std::atomic<bool> finished;          ///< it needs the others no more

  void keep(const NumberedCall& call);
  /// None if the row does not have it, or not any more.
  std::optional<NumberedCall> find(uint32_t number) const;

  /// Seconds since its last heartbeat.
  double age_s() const;
  /// Without a heartbeat for a second, which a busy machine delays by tenths. A rank that needs the others no more has none
  /// either.
  bool is_stopped() const { return !finished && age_s() > 1; }

 private:
  struct Place {
    std::atomic<uint32_t> number;
    NumberedCall call;
  };
  std::array<Place, kCalls> calls_;  ///< number n has the place n % kCalls
};

/// Memory of zeros is a board on which nothing has happened.
struct RankStatusTable {
  std::atomic<bool> claimed;      ///< a rank is going to say why the run ends
  std::atomic<bool> ended;        ///< it has said so: the others follow
  std::atomic<uint32_t> carried;  ///< how often the store has answered who carries rows
  RankStatus first_row;           ///< as many as there are ranks

  static size_t bytes(int64_t world) { return sizeof(RankStatusTable) + sizeof(RankStatus) * static_cast<size_t>(world - 1); }
  std::span<RankStatus> rows(int64_t world) { return {&first_row, static_cast<size_t>(world)}; }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

uint64_t now_ns();  ///< CLOCK_MONOTONIC

/// Step, collective and heartbeat of every rank, in one line.
std::string state_of_ranks(std::span<const RankStatus> rows);

}  // namespace scatterlm

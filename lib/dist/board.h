// What the ranks of one machine know of each other: a table in shared memory, one row a rank, written by that rank alone.
#pragma once
#include <c10/core/ScalarType.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>

namespace scatterlm {

enum class Operation : int8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kGatherBuffer, kBarrier };

/// What a rank asks of a collective. The n-th calls of all ranks must be equal.
struct Call {
  Operation operation = Operation::kBarrier;
  at::ScalarType dtype = at::kFloat;
  int64_t numel = 0;
  bool operator==(const Call&) const = default;
};

std::string describe(const Call& call);  ///< "all_reduce of 128 float32"

/// Collectives are numbered from 1; number n has the place n % kCalls. No rank is ever that many ahead of another.
inline constexpr uint32_t kCalls = 256;

struct Row {
  std::atomic<int32_t> pid;
  std::atomic<uint64_t> heartbeat;  ///< CLOCK_MONOTONIC, ns: the last tick of the rank's watchdog
  std::atomic<int64_t> step;
  std::atomic<uint32_t> called, done;  ///< collectives that it entered and left
  std::atomic<uint32_t> arrived;       ///< at meeting points
  std::atomic<uint32_t> beside;        ///< at those of another thread
  std::atomic<bool> finished;          ///< it needs the others no more
  std::array<Call, kCalls> calls;
};

/// Memory of zeros is a board on which nothing has happened.
struct Board {
  std::atomic<bool> claimed;  ///< a rank is going to say why the run ends
  std::atomic<bool> ended;    ///< it has said so: the others follow
  Row first_row;              ///< as many as there are ranks

  static size_t bytes(int64_t world) { return sizeof(Board) + sizeof(Row) * static_cast<size_t>(world - 1); }
  std::span<Row> rows(int64_t world) { return {&first_row, static_cast<size_t>(world)}; }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace scatterlm

#include "lib/distributed/rank_status.h"

#include <fmt/ranges.h>

#include <chrono>
#include <vector>

namespace scatterlm {

std::string describe(const Call& call) {
  static constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "buffer", "barrier"};
  const auto operation = static_cast<size_t>(call.operation);
  const auto* name = operation < std::size(kNames) ? kNames[operation] : "an unknown collective";  // of a damaged row
  return call.operation == Operation::kBarrier ? name : fmt::format("{} of {} {}", name, call.numel, c10::toString(call.dtype));
}

NumberedCall NumberedCall::next(const Call& call) const {
  uint64_t hash = chain;
  for (const auto part : {static_cast<int64_t>(call.operation), static_cast<int64_t>(call.dtype), call.numel}) {
    hash = (hash ^ static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15;  // odd, so that the multiplication loses nothing
    hash ^= hash >> 32;
  }
  return {number + 1, call, hash};
}

void RankStatus::keep(const NumberedCall& call) {
  Place& place = calls_[call.number % kCalls];
  if (place.number == call.number) return;
  place.number = 0;  // a reader in between finds nothing
  std::atomic_thread_fence(std::memory_order_release);
  place.call = call;
  place.number = call.number;
}

std::optional<NumberedCall> RankStatus::find(uint32_t number) const {
  const Place& place = calls_[number % kCalls];
  if (number == 0 || place.number != number) return std::nullopt;
  const NumberedCall call = place.call;
  std::atomic_thread_fence(std::memory_order_acquire);
  return place.number == number ? std::optional(call) : std::nullopt;
}

uint64_t now_ns() { return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()); }

double RankStatus::age_s() const {
  const uint64_t beat = heartbeat, now = now_ns();  // in this order, or a heartbeat in between would lie in the future
  return now > beat ? static_cast<double>(now - beat) * 1e-9 : 0;
}

std::string state_of_ranks(std::span<const RankStatus> rows) {
  std::vector<std::string> states;
  for (const RankStatus& row : rows) {
    const uint32_t called = row.called;
    const auto call = row.find(called);
    const auto* where = called == row.done ? "after" : "in";
    const auto collective =
        called == 0 ? "no collective yet"
                    : fmt::format("{} collective {}{}", where, called, call ? fmt::format(" ({})", describe(call->call)) : "");
    states.push_back(
        fmt::format("rank {}: step {}, {}, heartbeat {:.1f} s ago", row.rank.load(), row.step.load(), collective, row.age_s()));
  }
  return fmt::format("{}", fmt::join(states, "; "));
}

}  // namespace scatterlm

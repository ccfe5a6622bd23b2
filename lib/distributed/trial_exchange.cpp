#include "lib/distributed/trial_exchange.h"

#include <fmt/format.h>

#include <exception>
#include <thread>

#include "lib/util/text.h"

namespace scatterlm {
namespace {

using Clock = std::chrono::steady_clock;

std::string try_round(TrialExchange& exchange, int round, int64_t rank, int64_t world, std::chrono::duration<double> timeout) {
  const auto start = Clock::now();
  exchange.start(round);
  while (!exchange.is_done()) {
    if (Clock::now() - start > timeout)
      return fmt::format("a flag of another GPU did not arrive within {:g} s", timeout.count());
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  const auto values = exchange.received(round);
  for (int64_t from = 0; from < world; ++from) {
    const uint32_t value = values[static_cast<size_t>(from)], expected = trial_value(round, from, rank);
    if (from != rank && value != expected) return fmt::format("rank {} wrote {:#x}, and {:#x} arrived", from, expected, value);
  }
  return "";
}

}  // namespace

uint32_t trial_value(int round, int64_t from, int64_t to) {
  constexpr uint32_t kNotZero = 0x5ca77e00;  // as memory is before the first write
  return kNotZero ^ static_cast<uint32_t>((round * 1009 + from) * 1013 + to);
}

std::string try_exchange(TrialExchange& exchange, int64_t rank, int64_t world, std::chrono::duration<double> timeout) {
  for (int round = 0; round < TrialExchange::kRounds; ++round) {
    std::string reason;
    try {
      reason = try_round(exchange, round, rank, world, timeout);
    } catch (const std::exception& error) {
      reason = first_line(error.what());
    }
    if (reason.empty()) continue;
    exchange.cancel();
    return reason;
  }
  return "";
}

std::string agree_on_reason(Rendezvous& rendezvous, const std::string& key, const std::string& own_reason) {
  const auto reasons = rendezvous.collect(key, own_reason);
  for (size_t rank = 0; rank < reasons.size(); ++rank) {
    if (!reasons[rank].empty()) return fmt::format("rank {}: {}", rank, reasons[rank]);
  }
  return "";
}

}  // namespace scatterlm

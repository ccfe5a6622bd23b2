// A fake exchange through memory that processes share, which can fail in the ways in which a driver can.
#include "lib/distributed/trial_exchange.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "lib/util/error.h"
#include "tests/distributed/ranks.h"

#include "tests/catch.h"

using namespace scatterlm;
using namespace scatterlm::test;

namespace {

constexpr int kRanks = 3;

enum class Fault { kNone, kError, kLost, kWrongValue };

struct Shared {
  std::array<std::array<std::array<std::atomic<uint32_t>, kRanks>, kRanks>, TrialExchange::kRounds> values;  ///< from, to
  std::array<std::array<char, 200>, kRanks> reasons;
  std::array<std::atomic<int>, kRanks> cancelled;
};

class FakeExchange final : public TrialExchange {
 public:
  FakeExchange(Shared& shared, size_t rank, Fault fault, int broken_round)
      : shared_(shared), rank_(rank), fault_(fault), broken_round_(broken_round) {}

  void start(int round) override {
    round_ = static_cast<size_t>(round);
    const auto fault = round == broken_round_ ? fault_ : Fault::kNone;
    if (fault == Fault::kError) fail("operation not supported");
    for (size_t to = 0; to < kRanks; ++to) {
      if (to == rank_ || fault == Fault::kLost) continue;
      const uint32_t value = trial_value(round, static_cast<int64_t>(rank_), static_cast<int64_t>(to));
      shared_.values[round_][rank_][to] = fault == Fault::kWrongValue ? value + 1 : value;
    }
  }
  bool is_done() override {
    bool all = true;
    for (size_t from = 0; from < kRanks; ++from) all = all && (from == rank_ || shared_.values[round_][from][rank_] != 0);
    return all;
  }
  std::vector<uint32_t> received(int round) override {
    std::vector<uint32_t> result;
    for (const auto& from : shared_.values[static_cast<size_t>(round)]) result.push_back(from[rank_]);
    return result;
  }
  void cancel() override { ++shared_.cancelled[rank_]; }

 private:
  Shared& shared_;
  size_t rank_, round_ = 0;
  Fault fault_;
  int broken_round_;
};

struct TrialOutcome {
  std::vector<std::string> reasons;  ///< of each rank
  int cancelled = 0;                 ///< ranks that ended their waits
};

/// All ranks exchange, and agree; one of them has a fault.
TrialOutcome exchange(Fault fault, size_t guilty, int broken_round) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& shared = *static_cast<Shared*>(memory);
  Ranks ranks(kRanks);
  const auto codes = ranks.run_with_options([&](const CommOptions& own) {
    const auto rank = static_cast<size_t>(own.launch_env.rank);
    Rendezvous rendezvous(own);
    rendezvous.barrier("begin");
    FakeExchange fake(shared, rank, rank == guilty ? fault : Fault::kNone, broken_round);
    const auto reason = try_exchange(fake, own.launch_env.rank, kRanks, std::chrono::seconds(1));
    const auto agreed = agree_on_reason(rendezvous, "trial", reason);
    std::strncpy(shared.reasons[rank].data(), agreed.c_str(), shared.reasons[rank].size() - 1);
    return true;
  });
  REQUIRE(codes == ExitCodes(kRanks, 0));
  TrialOutcome outcome;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    outcome.reasons.emplace_back(shared.reasons[rank].data());
    outcome.cancelled += shared.cancelled[rank];
  }
  munmap(memory, sizeof(Shared));
  return outcome;
}

const auto all_say = [](const std::string& reason) { return std::vector<std::string>(kRanks, reason); };

}  // namespace

TEST_CASE("an exchange whose values are right gives no rank a reason against it") {
  const auto outcome = exchange(Fault::kNone, 0, 0);
  REQUIRE(outcome.reasons == all_say(""));
  REQUIRE(outcome.cancelled == 0);
}

TEST_CASE("an error of one rank in any round makes all ranks give the same reason, and none waits on") {
  for (int round = 0; round < TrialExchange::kRounds; ++round) {
    const auto outcome = exchange(Fault::kError, 0, round);
    REQUIRE(outcome.reasons == all_say("rank 0: operation not supported"));
    REQUIRE(outcome.cancelled == kRanks);
  }
}

TEST_CASE("a flag that does not arrive is a reason for all ranks after the timeout") {
  const auto outcome = exchange(Fault::kLost, 2, 1);
  REQUIRE(outcome.reasons == all_say("rank 0: a flag of another GPU did not arrive within 1 s"));
  REQUIRE(outcome.cancelled == kRanks);
}

TEST_CASE("a wrong value is a reason for all ranks, also the one whose values were right") {
  const uint32_t right = trial_value(2, 1, 0);
  const auto outcome = exchange(Fault::kWrongValue, 1, 2);
  REQUIRE(outcome.reasons == all_say(fmt::format("rank 0: rank 1 wrote {:#x}, and {:#x} arrived", right, right + 1)));
  REQUIRE(outcome.cancelled == 2);
}

TEST_CASE("values of a trial tell rounds and ranks apart") {
  std::vector<uint32_t> values{0};
  for (int round = 0; round < TrialExchange::kRounds; ++round) {
    for (int64_t from = 0; from < 8; ++from) {
      for (int64_t to = 0; to < 8; ++to) values.push_back(trial_value(round, from, to));
    }
  }
  std::ranges::sort(values);
  REQUIRE(std::ranges::adjacent_find(values) == values.end());
}

// Whether ranks can exchange values through each other's GPU memory, tried once at the start; all ranks come to the same
// answer.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/distributed/rendezvous.h"

namespace scatterlm {

/// A driver may refuse to write flags into another GPU's memory, lose them, or show them before the data that they announce
/// (CUDA 13.1 and later: https://github.com/NVIDIA/nccl/issues/2052). One rank's part of the trial; tests use a fake one.
class TrialExchange {
 public:
  static constexpr int kRounds = 3;

  virtual ~TrialExchange() = default;
  /// Begins to write trial_value(round, this rank, r) to each other rank r, and to wait for the values of the others. Rounds
  /// are counted from 0. Throws Error if that is refused.
  virtual void start(int round) = 0;
  /// Whether all values of the round are said to have arrived.
  virtual bool is_done() = 0;
  /// [ranks]: what each rank has written to this one in the round.
  virtual std::vector<uint32_t> received(int round) = 0;
  /// Ends the waiting of start(). Throws Error if that fails.
  virtual void cancel() = 0;
};

uint32_t trial_value(int round, int64_t from, int64_t to);

/// Returns an empty text if every round gave the right values within the timeout, and otherwise the reason: an error, a timeout
/// or a wrong value. Throws only what cancel() throws.
std::string try_exchange(TrialExchange& exchange, int64_t rank, int64_t world, std::chrono::duration<double> timeout);

/// The reason of the first rank that has one, with its number, or an empty text: the same on all ranks, which all must call it.
std::string agree_on_reason(Rendezvous& rendezvous, const std::string& key, const std::string& own_reason);

}  // namespace scatterlm

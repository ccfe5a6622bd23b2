#include "lib/dist/shared_board.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

#include "lib/util/error.h"

namespace scatterlm {
namespace {

constexpr timespec kNap{.tv_sec = 0, .tv_nsec = 10'000'000};

void wake_waiters(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

/// Returns when the word has reached `goal`; it counts up and may wrap around. The watchdog ends a wait in vain.
void wait_until(std::atomic<uint32_t>& word, uint32_t goal, const std::stop_token& stop = {}) {
  for (int spin = 0; spin < 200; ++spin) {
    if (static_cast<int32_t>(word - goal) >= 0) return;
  }
  for (uint32_t seen = word; static_cast<int32_t>(seen - goal) < 0; seen = word) {
    if (stop.stop_requested()) fail("stopped while other ranks are waited for");
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &kNap, nullptr, 0);
  }
}

}  // namespace

SharedBoard::SharedBoard(const CommOptions& options, Rendezvous& rendezvous, size_t extra_bytes)
    : rank_(options.world.rank), world_(options.world.size) {
  const size_t bytes = board_bytes() + extra_bytes;
  if (rank_ == 0) memory_.emplace(bytes);
  const auto path = rendezvous.share("memory", rank_ == 0 ? memory_->path() : "");
  if (rank_ != 0) memory_.emplace(path, bytes);
  rows()[static_cast<size_t>(rank_)].pid = getpid();
  rendezvous.meet("mapped");
  watchdog_.emplace(board(), rank_, world_, Patience{options.start_timeout_s, options.timeout_s});
}

void SharedBoard::meet() { meet(&Row::arrived, ++meetings_, {}); }
void SharedBoard::meet_beside(const std::stop_token& stop) { meet(&Row::beside, ++meetings_beside_, stop); }

void SharedBoard::meet(std::atomic<uint32_t> Row::*place, uint32_t meeting, const std::stop_token& stop) {
  auto& own = rows()[static_cast<size_t>(rank_)].*place;
  own = meeting;
  wake_waiters(own);
  for (auto& row : rows()) wait_until(row.*place, meeting, stop);
}

}  // namespace scatterlm

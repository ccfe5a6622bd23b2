#include "lib/dist/watchdog.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>

#include "lib/util/error.h"
#include "lib/util/log/log.h"

namespace scatterlm {
namespace {

constexpr auto kTick = std::chrono::milliseconds(20);
constexpr double kStoppedAfter_s = 1;  // without a heartbeat; a busy machine delays it by tenths

uint64_t now_ns() { return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()); }

double age_s(const Row& row) {
  const uint64_t beat = row.heartbeat, now = now_ns();  // in this order: a beat in between would be in the future
  return now > beat ? static_cast<double>(now - beat) * 1e-9 : 0;
}

/// Without a heartbeat. A rank that needs the others no more has none either.
bool is_stopped(const Row& row) { return !row.finished && age_s(row) > kStoppedAfter_s; }

bool is_gone(int pidfd) {
  pollfd query{.fd = pidfd, .events = POLLIN, .revents = 0};
  return poll(&query, 1, 0) == 1;
}

}  // namespace

std::string describe(const Call& call) {
  static constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather",
                                           "broadcast",  "gather_buffer",  "barrier"};
  const auto* name = kNames[static_cast<int>(call.operation)];
  return call.operation == Operation::kBarrier ? name : fmt::format("{} of {} {}", name, call.numel, c10::toString(call.dtype));
}

Watchdog::Watchdog(Board& board, int64_t rank, int64_t world, Patience patience)
    : board_(board), rows_(board.rows(world)), rank_(rank), patience_(patience) {
  for (int64_t peer = 0; peer < world; ++peer) {
    if (peer == rank) continue;
    const auto fd = static_cast<int>(syscall(SYS_pidfd_open, rows_[static_cast<size_t>(peer)].pid.load(), 0));
    if (fd < 0 && errno == ESRCH) fail("rank {} was gone before the run began; its own message says why", peer);
    if (fd < 0) fail("rank {} cannot be watched (pidfd_open): {}; Linux 5.3 or newer is needed", peer, std::strerror(errno));
    peers_.push_back({peer, fd});
  }
  own().heartbeat = now_ns();
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  stop_ = true;
  thread_.join();
  if (std::uncaught_exceptions() > 0) {
    if (!board_.claimed.exchange(true) && own().step > 0) log_error(fmt::format("this rank fails; {}", state_of_ranks()));
    board_.ended = true;
  } else {
    own().finished = true;
  }
  for (const auto& peer : peers_) close(peer.pidfd);
}

uint32_t Watchdog::enter(const Call& call) {
  const uint32_t number = own().called + 1;
  own().calls[number % kCalls] = call;
  own().called = number;
  return number;
}

void Watchdog::check_call(uint32_t number) {
  const Call& mine = own().calls[number % kCalls];
  for (const auto& peer : peers_) {
    const Call& theirs = rows_[static_cast<size_t>(peer.rank)].calls[number % kCalls];
    if (mine == theirs) continue;
    end(fmt::format("collective {} is {} on rank {} and {} on rank {}", number, describe(mine), rank_, describe(theirs),
                    peer.rank));
  }
}

void Watchdog::watch() {
  auto last = std::chrono::steady_clock::now();
  while (!stop_) {
    own().heartbeat = now_ns();
    if (board_.ended) _exit(kExitPeer);
    look_for_the_dead();
    const auto now = std::chrono::steady_clock::now();
    look_at_the_clock(std::min(std::chrono::duration<double>(now - last).count(), 1.0));
    last = now;
    std::this_thread::sleep_for(kTick);
  }
}

void Watchdog::look_for_the_dead() {
  const bool waiting = own().called != own().done;
  for (const auto& [peer, pidfd] : peers_) {
    if (!is_gone(pidfd)) continue;
    const Row& row = rows_[static_cast<size_t>(peer)];
    if (!row.finished) end(fmt::format("rank {} is gone: it was killed or has crashed", peer));
    if (waiting && static_cast<int32_t>(own().called - row.called) > 0) end(fmt::format("rank {} has left the run", peer));
  }
}

void Watchdog::look_at_the_clock(double passed_s) {
  const uint32_t next = own().done + 1;
  if (own().called + 1 == next) return;
  if (next != waiting_for_) {
    waiting_for_ = next;
    waited_s_ = 0;
  }
  waited_s_ += passed_s;
  if (waited_s_ > (started_ ? patience_.step_s : patience_.start_s)) end(why_nobody_answers(next));
}

std::string Watchdog::why_nobody_answers(uint32_t number) const {
  const auto after = started_ ? fmt::format("within {:g} s (parallel.timeout_s)", patience_.step_s)
                              : fmt::format("within {:g} s (parallel.start_timeout_s)", patience_.start_s);
  for (const auto& peer : peers_) {
    const Row& row = rows_[static_cast<size_t>(peer.rank)];
    if (is_stopped(row))
      return fmt::format("rank {} is stopped, without a heartbeat for {:.1f} s; no answer {}", peer.rank, age_s(row), after);
  }
  for (const auto& peer : peers_) {
    if (static_cast<int32_t>(number - rows_[static_cast<size_t>(peer.rank)].called) > 0) {
      return fmt::format("rank {} lives but has not called the collective that the others wait in {}", peer.rank, after);
    }
  }
  return fmt::format("all ranks have called the same collective, and it did not end {}", after);
}

void Watchdog::end(const std::string& reason) {
  if (!board_.claimed.exchange(true)) {
    log_error(fmt::format("{}; {}", reason, state_of_ranks()));
    end_the_stopped();
    board_.ended = true;
  }
  for (int i = 0; i < 50 && !board_.ended; ++i) std::this_thread::sleep_for(kTick);  // unless who tells dies over it
  _exit(kExitPeer);
}

void Watchdog::end_the_stopped() const {
  for (const auto& [peer, pidfd] : peers_) {
    if (!is_stopped(rows_[static_cast<size_t>(peer)]) || is_gone(pidfd)) continue;
    if (syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0) == 0)
      log_error(fmt::format("rank {} is stopped: killed", peer));
  }
}

std::string Watchdog::state_of_ranks() const {
  std::vector<std::string> states;
  for (int64_t rank = 0; rank < std::ssize(rows_); ++rank) {
    const Row& row = rows_[static_cast<size_t>(rank)];
    const uint32_t called = row.called;
    const auto* where = called == row.done ? "after" : "in";
    const auto collective = called == 0
                                ? "no collective yet"
                                : fmt::format("{} collective {} ({})", where, called, describe(row.calls[called % kCalls]));
    states.push_back(
        fmt::format("rank {}: step {}, {}, heartbeat {:.1f} s ago", rank, row.step.load(), collective, age_s(row)));
  }
  return fmt::format("{}", fmt::join(states, "; "));
}

}  // namespace scatterlm

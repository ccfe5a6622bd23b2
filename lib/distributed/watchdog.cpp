#include "lib/distributed/watchdog.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>

#include "lib/distributed/topology.h"
#include "lib/util/error.h"
#include "lib/util/log/log.h"

namespace scatterlm {
namespace {

constexpr auto kTick = std::chrono::milliseconds(20);
constexpr double kSilent_s = 2;  // without rows of other machines, which come every 100 ms

bool is_gone(int pidfd) {
  pollfd query{.fd = pidfd, .events = POLLIN, .revents = 0};
  return poll(&query, 1, 0) == 1;
}

}  // namespace

Watchdog::Watchdog(RankStatusTable& board, int64_t rank, const std::vector<int64_t>& machines, Patience patience,
                   StoreLink* link)
    : board_(board), rows_(board.rows(std::ssize(machines))), rank_(rank), patience_(patience), link_(link) {
  for (int64_t peer = 0; peer < std::ssize(rows_); ++peer) {
    if (peer == rank) continue;
    int fd = -1;
    if (machines[static_cast<size_t>(peer)] == machines[static_cast<size_t>(rank)]) {
      fd = static_cast<int>(syscall(SYS_pidfd_open, row(peer).pid.load(), 0));
      if (fd < 0 && errno == ESRCH) fail("rank {} was gone before the run began; its own message says why", peer);
      if (fd < 0) fail("rank {} cannot be watched (pidfd_open): {}; Linux 5.3 or newer is needed", peer, std::strerror(errno));
    }
    peers_.push_back({peer, fd});
  }
  own().heartbeat = now_ns();
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  stop_ = true;
  thread_.join();
  if (std::uncaught_exceptions() > 0)
    tell_failure();
  else
    own().finished = true;
  for (const auto& peer : peers_) {
    if (peer.pidfd >= 0) close(peer.pidfd);
  }
}

void Watchdog::tell_failure() {
  if (!board_.claimed.exchange(true)) {
    if (own().step > 0) log_error(fmt::format("this rank fails; {}", state_of_ranks(rows_)));
    if (link_ != nullptr) link_->tell(fmt::format("rank {} fails; its own message says why", rank_));
  }
  board_.ended = true;
  if (link_ != nullptr) link_->linger();
}

uint32_t Watchdog::enter(const Call& call) {
  const auto last = own().find(own().called).value_or(NumberedCall{.number = own().called});
  const auto next = last.next(call);
  own().keep(next);
  own().called = next.number;
  return next.number;
}

void Watchdog::compare_calls() {
  const uint32_t mine = own().called;
  for (const auto& peer : peers_) {
    const uint32_t theirs = row(peer.rank).called, both = static_cast<int32_t>(theirs - mine) < 0 ? theirs : mine;
    const auto here = own().find(both), there = row(peer.rank).find(both);  // neither may be too far behind
    if (here && there && here->chain != there->chain) end(difference(peer.rank, both));
  }
}

std::string Watchdog::difference(int64_t peer, uint32_t number) const {
  for (auto here = own().find(number), there = row(peer).find(number);;) {
    const auto before = own().find(here->number - 1), before_there = row(peer).find(here->number - 1);
    const bool first = here->number == 1 || (before && before_there && before->chain == before_there->chain);
    if (first) {
      return fmt::format("collective {} is {} on rank {} and {} on rank {}", here->number, describe(here->call), rank_,
                         describe(there->call), peer);
    }
    if (!before || !before_there)
      return fmt::format("some collective before number {} is not the same on ranks {} and {}", here->number, rank_, peer);
    here = before;
    there = before_there;
  }
}

void Watchdog::watch() {
  auto last = std::chrono::steady_clock::now();
  while (!stop_) {
    own().heartbeat = now_ns();
    if (board_.ended) {
      if (link_ != nullptr) link_->linger();
      _exit(kExitPeer);
    }
    look_for_the_dead();
    const auto now = std::chrono::steady_clock::now();
    const double passed_s = std::min(std::chrono::duration<double>(now - last).count(), 1.0);
    last = now;
    look_at_other_machines(passed_s);
    look_at_the_clock(passed_s);
    std::this_thread::sleep_for(kTick);
  }
}

void Watchdog::look_for_the_dead() {
  const bool waiting = own().called != own().done;
  for (const auto& [peer, pidfd] : peers_) {
    const RankStatus& theirs = row(peer);
    if (pidfd >= 0 ? !is_gone(pidfd) : !theirs.finished) continue;
    if (!theirs.finished) end(fmt::format("rank {} is gone: it was killed or has crashed", peer));
    if (waiting && static_cast<int32_t>(own().called - theirs.called) > 0) end(fmt::format("rank {} has left the run", peer));
  }
}

void Watchdog::look_at_other_machines(double passed_s) {
  if (link_ == nullptr) return;
  if (const auto news = link_->heard()) end(*news);
  silent_s_ = board_.carried == carried_ ? silent_s_ + passed_s : 0;
  carried_ = board_.carried;
  if (silent_s_ > patience_s())
    end(fmt::format("{} has not answered for {:.1f} s ({})", link_->keeper(), silent_s_, patience_key()));
}

void Watchdog::look_at_the_clock(double passed_s) {
  const uint32_t next = own().done + 1;
  if (own().called + 1 == next) return;
  if (next != waiting_for_) {
    waiting_for_ = next;
    waited_s_ = 0;
  }
  waited_s_ += passed_s;
  if (waited_s_ > patience_s()) end(why_nobody_answers(next));
}

std::string Watchdog::why_nobody_answers(uint32_t number) const {
  const auto after = fmt::format("within {:g} s ({})", patience_s(), patience_key());
  const Peer* oldest = nullptr;  // rows of a machine grow old together until another rank carries them
  for (const auto& peer : peers_) {
    const bool unknown = peer.pidfd < 0 && silent_s_ > kSilent_s;
    if (unknown || !row(peer.rank).is_stopped()) continue;
    if (oldest == nullptr || row(peer.rank).age_s() > row(oldest->rank).age_s()) oldest = &peer;
  }
  if (oldest != nullptr) {
    return fmt::format("rank {} is stopped, without a heartbeat for {:.1f} s{}; no answer {}", oldest->rank,
                       row(oldest->rank).age_s(), oldest->pidfd < 0 ? ", or its machine is out of reach" : "", after);
  }
  if (silent_s_ > kSilent_s)
    return fmt::format("{} has not answered for {:.1f} s; no answer of other ranks {}", link_->keeper(), silent_s_, after);
  for (const auto& peer : peers_) {
    if (static_cast<int32_t>(number - row(peer.rank).called) > 0) {
      return fmt::format("rank {} lives but has not called the collective that the others wait in {}", peer.rank, after);
    }
  }
  return fmt::format("all ranks have called the same collective, and it did not end {}", after);
}

void Watchdog::end(const std::string& reason) {
  if (!board_.claimed.exchange(true)) {
    log_error(fmt::format("{}; {}", reason, state_of_ranks(rows_)));
    end_the_stopped();
    if (link_ != nullptr) link_->tell(reason);
    board_.ended = true;
  }
  for (int i = 0; i < 100 && !board_.ended; ++i) std::this_thread::sleep_for(kTick);  // unless who tells dies over it
  if (link_ != nullptr) link_->linger();
  _exit(kExitPeer);
}

void Watchdog::end_the_stopped() const {
  for (const auto& [peer, pidfd] : peers_) {
    if (pidfd < 0 || row(peer).finished || is_gone(pidfd) || !is_halted(row(peer).pid)) continue;
    if (syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0) == 0)
      log_error(fmt::format("rank {} is stopped: killed", peer));
  }
}

}  // namespace scatterlm

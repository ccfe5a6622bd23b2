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
/// A store that has been silent for so long, or a machine whose heartbeats have, may be what a collective waits for.
constexpr double kSilent_s = 2;
/// At a timeout that no rank of this machine explains, the machine of the late rank gets so much longer to name it.
constexpr double kOtherMachineGrace_s = 2;

bool is_gone(int pidfd) {
  pollfd query{.fd = pidfd, .events = POLLIN, .revents = 0};
  return poll(&query, 1, 0) == 1;
}

}  // namespace

Watchdog::Watchdog(RankStatusTable& table, std::span<RankStatus> rows, int64_t own_row, Timeouts timeouts,
                   MachineMonitor* monitor)
    : table_(table), rows_(rows), own_(rows[static_cast<size_t>(own_row)]), timeouts_(timeouts), monitor_(monitor) {
  for (const RankStatus& status : rows_) {
    if (&status == &own_) continue;
    const int fd = static_cast<int>(syscall(SYS_pidfd_open, status.pid.load(), 0));
    const int64_t rank = status.rank;
    if (fd < 0 && errno == ESRCH) fail("rank {} was gone before the run began; its own message says why", rank);
    if (fd < 0) fail("rank {} cannot be watched (pidfd_open): {}; Linux 5.3 or newer is needed", rank, std::strerror(errno));
    peers_.push_back({&status, fd});
  }
  own_.heartbeat = now_ns();
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  stop_ = true;
  thread_.join();
  if (std::uncaught_exceptions() > 0)
    tell_failure();
  else
    own_.finished = true;
  for (const auto& peer : peers_) close(peer.pidfd);
}

void Watchdog::tell_failure() {
  if (!table_.reporter_chosen.exchange(true)) {
    if (own_.step > 0) log_error(fmt::format("this rank fails; {}", state_of_ranks(rows_)));
    if (monitor_ != nullptr) monitor_->abort(fmt::format("rank {} fails; its own message says why", own_.rank.load()));
  }
  table_.aborted = true;
  if (monitor_ != nullptr) monitor_->let_others_read();
}

uint32_t Watchdog::enter(const Call& call) {
  const auto last = own_.find(own_.called).value_or(NumberedCall{.number = own_.called});
  const auto next = last.next(call);
  own_.keep(next);
  own_.called = next.number;
  return next.number;
}

void Watchdog::compare_calls() {
  const uint32_t mine = own_.called;
  for (const auto& peer : peers_) {
    const uint32_t theirs = peer.status->called, both = static_cast<int32_t>(theirs - mine) < 0 ? theirs : mine;
    const auto here = own_.find(both), there = peer.status->find(both);  // neither may be too far behind
    if (here && there && here->chain != there->chain) end(difference(*peer.status, both));
  }
}

std::string Watchdog::difference(const RankStatus& peer, uint32_t number) const {
  const int64_t own_rank = own_.rank, peer_rank = peer.rank;
  for (auto here = own_.find(number), there = peer.find(number);;) {
    const auto before = own_.find(here->number - 1), before_there = peer.find(here->number - 1);
    const bool first = here->number == 1 || (before && before_there && before->chain == before_there->chain);
    if (first) {
      return fmt::format("collective {} is {} on rank {} and {} on rank {}", here->number, describe(here->call), own_rank,
                         describe(there->call), peer_rank);
    }
    if (!before || !before_there) {
      return fmt::format("some collective before number {} is not the same on ranks {} and {}", here->number, own_rank,
                         peer_rank);
    }
    here = before;
    there = before_there;
  }
}

void Watchdog::watch() {
  auto last = std::chrono::steady_clock::now();
  while (!stop_) {
    own_.heartbeat = now_ns();
    if (table_.aborted) {
      if (monitor_ != nullptr) monitor_->let_others_read();
      _exit(kExitPeer);
    }
    check_processes();
    const auto now = std::chrono::steady_clock::now();
    const double passed_s = std::min(std::chrono::duration<double>(now - last).count(), 1.0);
    last = now;
    check_other_machines(passed_s);
    check_timeout(passed_s);
    std::this_thread::sleep_for(kTick);
  }
}

void Watchdog::check_processes() {
  const bool waiting = own_.called != own_.done;
  for (const auto& [peer, pidfd] : peers_) {
    if (!is_gone(pidfd)) continue;
    const int64_t rank = peer->rank;
    if (!peer->finished) end(fmt::format("rank {} is gone: it was killed or has crashed", rank));
    if (waiting && static_cast<int32_t>(own_.called - peer->called) > 0) end(fmt::format("rank {} has left the run", rank));
  }
}

void Watchdog::check_other_machines(double passed_s) {
  if (monitor_ == nullptr) return;
  if (const auto failure = monitor_->failure()) {
    check_processes();  // a rank of this machine that kept the store and is gone is the better explanation
    end(*failure);
  }
  if (const auto silent = monitor_->silent_machine(std::max(timeout_s(), kSilent_s)))
    end(fmt::format("{} ({})", *silent, timeout_key()));
  const uint64_t answers = monitor_->answers();
  store_silent_s_ = answers == store_answers_ ? store_silent_s_ + passed_s : 0;
  store_answers_ = answers;
  if (store_silent_s_ > timeout_s())
    end(fmt::format("{} has not answered for {:.1f} s ({})", monitor_->store_owner(), store_silent_s_, timeout_key()));
}

void Watchdog::check_timeout(double passed_s) {
  const uint32_t next = own_.done + 1;
  if (own_.called + 1 == next) return;
  if (next != waiting_for_) {
    waiting_for_ = next;
    waited_s_ = waited_for_storage_s_ = 0;
  }
  const bool storage = started_ && awaits_storage(next);
  double& waited_s = storage ? waited_for_storage_s_ : waited_s_;
  const double limit_s = storage ? timeouts_.storage_s : timeout_s();
  waited_s += passed_s;
  if (waited_s <= limit_s) return;
  const auto after = fmt::format("within {:g} s ({})", limit_s, storage ? "checkpoint.timeout_s" : timeout_key());
  if (const auto late = late_rank(next)) end(fmt::format("{} {}", *late, after));
  if (monitor_ == nullptr) end(fmt::format("all ranks have called the same collective, and it did not end {}", after));
  if (waited_s > limit_s + kOtherMachineGrace_s) end(fmt::format("{} {}", why_other_machines_are_late(next), after));
}

std::optional<std::string> Watchdog::late_rank(uint32_t number) const {
  const RankStatus* oldest = nullptr;
  for (const auto& [peer, pidfd] : peers_) {
    if (peer->is_stopped() && (oldest == nullptr || peer->age_s() > oldest->age_s())) oldest = peer;
  }
  if (oldest != nullptr) {
    return fmt::format("rank {} is stopped, without a heartbeat for {:.1f} s; no answer", oldest->rank.load(), oldest->age_s());
  }
  const RankStatus* late = nullptr;  // rather one that does not work with files, for which the others may wait longer
  for (const auto& [peer, pidfd] : peers_) {
    if (static_cast<int32_t>(number - peer->called) <= 0) continue;
    if (late == nullptr || (late->storage_scopes > 0 && peer->storage_scopes == 0)) late = peer;
  }
  if (late == nullptr) return std::nullopt;
  return fmt::format("rank {} {} has not called the collective that the others wait in", late->rank.load(),
                     late->storage_scopes > 0 ? "reads or writes files and" : "lives but");
}

bool Watchdog::awaits_storage(uint32_t number) const {
  bool any_late = false;
  for (const auto& [peer, pidfd] : peers_) {
    if (static_cast<int32_t>(number - peer->called) <= 0) continue;
    if (peer->storage_scopes == 0 || peer->is_stopped()) return false;
    any_late = true;
  }
  if (monitor_ == nullptr) return any_late;
  return monitor_->late_rank(number) ? monitor_->awaits_storage(number) : any_late;
}

std::string Watchdog::why_other_machines_are_late(uint32_t number) const {
  if (store_silent_s_ > kSilent_s) {
    return fmt::format("{} has not answered for {:.1f} s; no answer of other ranks", monitor_->store_owner(), store_silent_s_);
  }
  if (const auto silent = monitor_->silent_machine(kSilent_s)) return *silent + "; no answer of its ranks";
  if (const auto late = monitor_->late_rank(number)) return *late;
  return "all ranks have called the same collective, and it did not end";
}

void Watchdog::end(const std::string& reason) {
  if (!table_.reporter_chosen.exchange(true)) {
    log_error(fmt::format("{}; {}", reason, state_of_ranks(rows_)));
    kill_halted_ranks();
    if (monitor_ != nullptr) monitor_->abort(reason);
    table_.aborted = true;
  }
  for (int i = 0; i < 100 && !table_.aborted; ++i) std::this_thread::sleep_for(kTick);  // the rank that reports may die over it
  if (monitor_ != nullptr) monitor_->let_others_read();
  _exit(kExitPeer);
}

void Watchdog::kill_halted_ranks() const {
  for (const auto& [peer, pidfd] : peers_) {
    if (peer->finished || is_gone(pidfd) || !is_halted(peer->pid)) continue;
    if (syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0) == 0)
      log_error(fmt::format("rank {} is stopped: killed", peer->rank.load()));
  }
}

}  // namespace scatterlm

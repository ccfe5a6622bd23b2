#include "lib/distributed/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <set>

#include "lib/distributed/rank_process.h"
#include "lib/distributed/rendezvous.h"
#include "lib/util/error.h"
#include "lib/util/log/log.h"
#include "lib/util/stop_signals.h"

namespace scatterlm {
namespace {

using Clock = std::chrono::steady_clock;

/// Long enough for the other ranks to notice a failure (a tick of their watchdogs) and to say so.
constexpr auto kGrace = std::chrono::seconds(2);

/// Signals as a file to poll. They must be blocked before any thread starts, or that thread would receive them.
class Signals {
 public:
  Signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : stop_signals()) sigaddset(&set, number);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  }
  ~Signals() { close(fd_); }

  int fd() const { return fd_; }
  /// The next one that arrived, if any.
  std::optional<int> take() {
    signalfd_siginfo info;
    return read(fd_, &info, sizeof(info)) == sizeof(info) ? std::optional(static_cast<int>(info.ssi_signo)) : std::nullopt;
  }

 private:
  int fd_;
};

/// The ranks of this machine, from their start to their end.
class Group {
 public:
  Group(const LaunchOptions& options, int64_t port, int64_t restart, Signals& signals)
      : signals_(signals), trains_(options.arguments.front() == "train") {
    std::vector<std::string> arguments{"scatterlm"};
    arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
    for (int64_t rank = 0; rank < options.ranks; ++rank) {
      ranks_.emplace_back(
          rank, arguments,
          std::vector<std::string>{fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", options.ranks),
                                   fmt::format("LOCAL_RANK={}", rank), fmt::format("LOCAL_WORLD_SIZE={}", options.ranks),
                                   "MASTER_ADDR=127.0.0.1", fmt::format("MASTER_PORT={}", port), "SCATTERLM_LAUNCH=1",
                                   "TORCHELASTIC_USE_AGENT_STORE=True", fmt::format("TORCHELASTIC_RESTART_COUNT={}", restart)});
    }
  }

  /// Returns when all have ended.
  void run() {
    while (step()) {
    }
    for (auto& rank : ranks_) rank.relay();
  }

  bool asked_to_stop() const { return !passed_on_.empty(); }

  int exit_code() const {
    if (stopped_at_start_) return kExitRestart;
    if (failure_ != kExitDone) return failure_;
    const bool restart =
        std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank.status() == kExitRestart; });
    return restart ? kExitRestart : kExitDone;
  }

 private:
  /// Waits for something to happen and deals with it. False if nobody runs any more.
  bool step() {
    std::vector<pollfd> files{{signals_.fd(), POLLIN, 0}};
    for (const auto& rank : ranks_) {
      for (const int fd : rank.pipes()) files.push_back({fd, POLLIN, 0});  // poll passes over -1
    }
    poll(files.data(), files.size(), /*ms=*/100);
    while (const auto signal = signals_.take()) {
      if (*signal == SIGCHLD) continue;
      passed_on_.insert(*signal);
      for (const auto& rank : ranks_) rank.send(*signal);
    }
    bool running = false;
    for (auto& rank : ranks_) {
      rank.relay();
      if (rank.has_ended()) note_end(rank);
      if (rank.running() && kill_at_ && Clock::now() >= *kill_at_) {
        rank.send(SIGKILL);
        killed_.insert(rank.rank());
      }
      running = running || rank.running();
    }
    return running;
  }

  void note_end(RankProcess& rank) {
    rank.relay();
    const int status = rank.status();
    if (status == kExitDone || status == kExitRestart || stopped_at_start_) return;
    if (trains_ && passed_on_.contains(-status)) {  // the rank had not installed its signal handlers yet
      log_info("asked to stop while the ranks were starting; the same command continues");
      stopped_at_start_ = true;
      kill_at_ = Clock::now();
      return;
    }
    const bool killed_here = killed_.contains(rank.rank());
    if (!kill_at_) kill_at_ = Clock::now() + kGrace;
    if (status < 0) {
      log_error(killed_here ? fmt::format("rank {} did not end by itself: killed", rank.rank())
                            : fmt::format("rank {} was ended by a signal: {}", rank.rank(), strsignal(-status)));
    }
    // The exit code of the rank that failed counts before those of ranks that ended because of it.
    if (!killed_here && (failure_ == kExitDone || failure_ == kExitPeer)) failure_ = status < 0 ? kExitFailure : status;
  }

  Signals& signals_;
  std::vector<RankProcess> ranks_;
  int failure_ = kExitDone;
  bool trains_, stopped_at_start_ = false;
  std::set<int> passed_on_;  ///< signals
  std::optional<Clock::time_point> kill_at_;
  std::set<int64_t> killed_;  ///< ranks that did not end by themselves
};

}  // namespace

int launch(const LaunchOptions& options) {
  Signals signals;
  const StoreServer store;
  for (int64_t restart = 0;; ++restart) {
    Group group(options, store.port(), restart, signals);
    group.run();
    const int code = group.exit_code();
    const bool may_succeed = code != kExitDone && code != kExitRestart && code != kExitUser && !group.asked_to_stop();
    if (!may_succeed || restart == options.max_restarts) return code;
    log_warning(fmt::format("restart {} of {}", restart + 1, options.max_restarts));
  }
}

}  // namespace scatterlm

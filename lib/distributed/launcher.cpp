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
#include "lib/distributed/store_link.h"
#include "lib/util/error.h"
#include "lib/util/log/log.h"
#include "lib/util/stop_signals.h"

namespace scatterlm {
namespace {

using Clock = std::chrono::steady_clock;

/// Long enough for the other ranks to notice a failure (a tick of their watchdogs) and to say so.
constexpr auto kGrace = std::chrono::seconds(2);

/// With several machines: for the other launchers to see their ranks end, before the store goes. After a failure one may be
/// gone.
constexpr auto kPatienceAtEnd = std::chrono::seconds(10), kPatienceAfterFailure = kGrace + std::chrono::seconds(1);

/// Signals as a file to poll. They must be blocked before any thread starts, or that thread would take them.
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
    for (int64_t local = 0; local < options.ranks; ++local) {
      const int64_t rank = options.node_rank * options.ranks + local;
      ranks_.emplace_back(
          rank, arguments,
          std::vector<std::string>{fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", options.nodes * options.ranks),
                                   fmt::format("LOCAL_RANK={}", local), fmt::format("LOCAL_WORLD_SIZE={}", options.ranks),
                                   fmt::format("MASTER_ADDR={}", options.address), fmt::format("MASTER_PORT={}", port),
                                   "SCATTERLM_LAUNCH=1", "TORCHELASTIC_USE_AGENT_STORE=True",
                                   fmt::format("TORCHELASTIC_RESTART_COUNT={}", restart)});
    }
    if (options.nodes > 1) link_.emplace(link_options(options, port, restart));
  }

  /// Returns when all have ended.
  void run() {
    while (step()) {
    }
    for (auto& rank : ranks_) rank.relay();
    if (link_) link_->leave(failure_ == kExitDone ? kPatienceAtEnd : kPatienceAfterFailure);
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
  /// Ranks tell those of other machines why they end; launchers do as well, for a machine without a rank that still can.
  static StoreLink::Options link_options(const LaunchOptions& options, int64_t port, int64_t restart) {
    const auto name = [](int64_t node) { return fmt::format("launcher {}", node); };
    StoreLink::Options link{.world = {.size = options.nodes * options.ranks,
                                      .address = options.address,
                                      .port = port,
                                      .hosted_store = true,
                                      .restart = restart},
                            .name = name(options.node_rank)};
    for (int64_t node = 1; node < options.nodes && options.node_rank == 0; ++node) link.awaited.push_back(name(node));
    return link;
  }

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
    if (link_ && !kill_at_) {
      if (const auto news = link_->heard()) follow(*news);
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

  /// Another machine ends the run: the ranks here do so as well, or are stopped.
  void follow(const std::string& news) {
    news_ = "; the run had ended: " + news;
    failure_ = kExitPeer;
    kill_at_ = Clock::now() + kGrace;
  }

  void note_end(RankProcess& rank) {
    rank.relay();
    const int status = rank.status();
    if (status == kExitDone || status == kExitRestart || stopped_at_start_) return;
    if (trains_ && passed_on_.contains(-status)) {  // its handlers were not there yet
      log_info("asked to stop while the ranks were starting; the same command goes on");
      stopped_at_start_ = true;
      kill_at_ = Clock::now();
      if (link_) link_->tell(fmt::format("rank {} was asked to stop before it had started", rank.rank()));
      return;
    }
    const bool killed_here = killed_.contains(rank.rank());
    if (!kill_at_) kill_at_ = Clock::now() + kGrace;
    const auto how = status > 0 ? fmt::format("failed with exit code {}", status)
                                : fmt::format("was ended by a signal: {}", strsignal(-status));
    if (status < 0)
      log_error(killed_here ? fmt::format("rank {} did not end by itself: killed{}", rank.rank(), news_)
                            : fmt::format("rank {} {}", rank.rank(), how));
    if (link_ && !killed_here && status != kExitPeer) link_->tell(fmt::format("rank {} {}", rank.rank(), how));
    // What others say of a rank that failed counts less than what it says itself.
    if (!killed_here && (failure_ == kExitDone || failure_ == kExitPeer)) failure_ = status < 0 ? kExitFailure : status;
  }

  Signals& signals_;
  std::vector<RankProcess> ranks_;
  int failure_ = kExitDone;
  bool trains_, stopped_at_start_ = false;
  std::set<int> passed_on_;  ///< signals
  std::optional<Clock::time_point> kill_at_;
  std::set<int64_t> killed_;       ///< ranks that did not end by themselves
  std::optional<StoreLink> link_;  ///< to the launchers and ranks of other machines
  std::string news_;
};

}  // namespace

int launch(const LaunchOptions& options) {
  Signals signals;
  std::optional<StoreServer> store;
  if (options.node_rank == 0) store.emplace(options.port, options.nodes * options.ranks);
  const int64_t port = store ? store->port() : options.port;
  for (int64_t restart = 0;; ++restart) {
    Group group(options, port, restart, signals);
    group.run();
    const int code = group.exit_code();
    const bool worth_it = code != kExitDone && code != kExitRestart && code != kExitUser && !group.asked_to_stop();
    if (!worth_it || restart == options.max_restarts) return code;
    log_warning(fmt::format("restart {} of {}", restart + 1, options.max_restarts));
  }
}

}  // namespace scatterlm

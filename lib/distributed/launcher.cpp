#include "lib/distributed/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>

#include "lib/distributed/launch_env.h"
#include "lib/distributed/rank_deadline.h"
#include "lib/distributed/rank_process.h"
#include "lib/distributed/rendezvous.h"
#include "lib/util/error.h"
#include "lib/util/log/log.h"
#include "lib/util/output.h"
#include "lib/util/stop_signals.h"

namespace scatterlm {
namespace {

using Clock = std::chrono::steady_clock;

/// Long enough for the other ranks to notice a failure (a tick of their watchdogs) and to say so.
constexpr double kGrace_s = 2;
/// After a mistake of the user, which one rank has explained; those that find the same one do so at the same time.
constexpr double kUserGrace_s = 0.5;
/// The watchdogs of other ranks know more about one that is stopped (step, collective), so they come first.
constexpr double kAfterWatchdogs_s = 5;
constexpr const char* kTimeoutKeys = "parallel.timeout_s + checkpoint.timeout_s";

/// Signals as a file to poll. They must be blocked before any thread starts, or that thread would receive them.
class Signals {
 public:
  Signals() {
    block_stop_signals();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    for (const int number : stop_signals()) sigaddset(&set, number);
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

/// 128 random bits, as 32 hex digits.
std::string make_job_token() {
  std::array<uint64_t, 2> bits;
  if (getrandom(bits.data(), sizeof(bits), 0) != sizeof(bits)) fail("[launch] no random number: {}", std::strerror(errno));
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

/// The ranks of this machine, from their start to their end.
class Group {
 public:
  Group(const LaunchOptions& options, int64_t port, const std::string& token, int64_t restart, Signals& signals)
      : signals_(signals),
        timeout_s_(options.timeout_s + options.storage_timeout_s),
        limits_{.stopped_s = options.timeout_s + kAfterWatchdogs_s} {
    std::vector<std::string> arguments{"scatterlm"};
    arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
    for (int64_t rank = 0; rank < options.ranks; ++rank) {
      members_.emplace_back(RankProcess(
          rank, arguments,
          std::vector<std::string>{fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", options.ranks),
                                   fmt::format("LOCAL_RANK={}", rank), fmt::format("LOCAL_WORLD_SIZE={}", options.ranks),
                                   "MASTER_ADDR=127.0.0.1", fmt::format("MASTER_PORT={}", port), "SCATTERLM_LAUNCH=1",
                                   fmt::format("{}={}", kJobToken, token), "TORCHELASTIC_USE_AGENT_STORE=True",
                                   fmt::format("TORCHELASTIC_RESTART_COUNT={}", restart)}));
    }
  }

  /// Returns when all have ended or been abandoned.
  void run() {
    while (step()) {
    }
    for (auto& member : members_) relay(member.process);
  }

  /// Whether starting the ranks again may help.
  bool may_restart() const {
    const int code = exit_code();
    return code != kExitDone && code != kExitRestart && code != kExitUser && !asked_to_stop_ && !abandoned_;
  }

  int exit_code() const {
    const bool restart = std::ranges::any_of(members_, [](const auto& rank) { return rank.process.status() == kExitRestart; });
    // A rank that is asked to stop may leave before the others know: they then end as its peers.
    if (restart && (failure_ == kExitDone || failure_ == kExitPeer)) return kExitRestart;
    return failure_;
  }

 private:
  struct Member {
    explicit Member(RankProcess started) : process(std::move(started)) {}
    RankProcess process;
    RankDeadline deadline;
  };

  /// Waits for something to happen and deals with it. False if nobody runs any more.
  bool step() {
    std::vector<pollfd> files{{signals_.fd(), POLLIN, 0}};
    for (const auto& member : members_) {
      for (const int fd : member.process.pipes()) files.push_back({fd, POLLIN, 0});  // poll passes over -1
    }
    poll(files.data(), files.size(), /*ms=*/100);
    const auto now = Clock::now();
    now_s_ += std::min(std::chrono::duration<double>(now - last_).count(), 1.0);
    last_ = now;
    while (const auto signal = signals_.take()) {
      if (*signal != SIGCHLD) stop(*signal);
    }
    bool running = false;
    for (auto& member : members_) {
      relay(member.process);
      if (member.process.has_ended()) note_end(member);
      if (member.process.running()) enforce_deadline(member);
      running = running || member.process.running();
    }
    return running;
  }

  void stop(int signal) {
    asked_to_stop_ = true;
    if (signal == SIGINT && interrupts_.is_second()) {
      log_error(kInterruptedTwice);
      failure_ = 128 + SIGINT;
      return end_within(0, "");
    }
    for (const auto& member : members_) {
      // Whoever has sent SIGINT to this process may have sent it to the rank too, for which it would be the second one.
      member.process.send(signal == SIGINT ? SIGTERM : signal);
      member.process.send(SIGCONT);
    }
    end_within(timeout_s_, fmt::format("within {:g} s ({}) after the request to stop", timeout_s_, kTimeoutKeys));
  }

  /// All ranks are to end within so many seconds, unless that is settled for an earlier time. Those that do not are killed with
  /// the message "rank 1 did not end {how}", if there is one.
  void end_within(double seconds, std::string how) {
    if (now_s_ + seconds >= limits_.end_s) return;
    limits_.end_s = now_s_ + seconds;
    how_ = std::move(how);
  }

  void enforce_deadline(Member& member) {
    const int64_t rank = member.process.rank();
    const auto action = member.deadline.check(now_s_, member.process.stopped(), limits_);
    if (action == RankDeadline::Action::kNone) return;
    if (failure_ == kExitDone) failure_ = kExitFailure;
    if (action == RankDeadline::Action::kAbandon) {
      log_error(fmt::format("rank {} does not end {:g} s after SIGKILL ({}); this launcher ends without it", rank,
                            RankDeadline::kAbandon_s, member.process.where()));
      member.process.abandon();
      abandoned_ = true;
      return;
    }
    if (action == RankDeadline::Action::kKillStopped)
      log_error(fmt::format("rank {} has been stopped for {:g} s: killed", rank, limits_.stopped_s));
    else if (!how_.empty())
      log_error(fmt::format("rank {} did not end {}: killed", rank, how_));
    member.process.send(SIGKILL);
  }

  void note_end(Member& member) {
    relay(member.process);
    const int64_t rank = member.process.rank();
    const int status = member.process.status();
    if (status == kExitDone || status == kExitRestart)
      return end_within(timeout_s_, fmt::format("within {:g} s ({}) after rank {}", timeout_s_, kTimeoutKeys, rank));
    end_within(status == kExitUser ? kUserGrace_s : kGrace_s, status == kExitUser ? "" : "by itself");
    if (member.deadline.killed()) return;
    if (status < 0) log_error(fmt::format("rank {} was ended by a signal: {}", rank, strsignal(-status)));
    // The exit code of the rank that failed counts before those of ranks that ended because of it.
    if (failure_ == kExitDone || failure_ == kExitPeer) failure_ = status < 0 ? kExitFailure : status;
  }

  void relay(RankProcess& rank) {
    rank.relay([&](std::FILE* to, std::string_view line) {
      if (!repeats_another_rank(rank.rank(), line)) print_or_warn(to, fmt::format("[{}] {}\n", rank.rank(), line));
    });
  }

  /// Whether the line is an error that another rank has reported in the same words, as when all find the same mistake.
  bool repeats_another_rank(int64_t rank, std::string_view line) {
    const auto before = fmt::format("error: rank {}: ", rank);
    const auto start = line.find(before);
    if (start == line.npos) return false;
    return errors_.emplace(line.substr(start + before.size()), rank).first->second != rank;
  }

  Signals& signals_;
  double timeout_s_;  ///< for a collective and for the files of a save
  std::vector<Member> members_;
  double now_s_ = 0;  ///< counted in own ticks, so that a launcher that was paused with its ranks does not blame them
  Clock::time_point last_ = Clock::now();
  RankDeadline::Limits limits_;
  std::string how_;
  int failure_ = kExitDone;
  bool asked_to_stop_ = false, abandoned_ = false;
  Interrupts interrupts_;
  std::map<std::string, int64_t> errors_;  ///< the rank that was the first to report it
};

}  // namespace

int launch(const LaunchOptions& options) {
  Signals signals;
  const StoreServer store;
  const auto token = make_job_token();
  for (int64_t restart = 0;; ++restart) {
    Group group(options, store.port(), token, restart, signals);
    group.run();
    if (!group.may_restart() || restart == options.max_restarts) return group.exit_code();
    log_warning(fmt::format("restart {} of {}", restart + 1, options.max_restarts));
  }
}

}  // namespace scatterlm

#pragma once
#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace scatterlm {

/// "process 4711, state D, waiting in nfs_wait_bit_killable"
std::string describe_process(pid_t pid);

/// A rank as its launcher sees it: a child process, and pipes from which its output is passed on line by line.
class RankProcess {
 public:
  /// Starts this program as a child. The environment entries ("NAME=value") override those of this process.
  RankProcess(int64_t rank, const std::vector<std::string>& arguments, const std::vector<std::string>& environment);
  /// Kills the process if it still runs and has not been abandoned, and waits for its end, at most a second.
  ~RankProcess();
  RankProcess(RankProcess&&) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;

  int64_t rank() const { return rank_; }
  bool running() const { return pid_ > 0; }
  void send(int signal) const;
  /// Whether a signal (SIGSTOP) has stopped the process, as has_ended() last saw it.
  bool stopped() const { return stopped_; }
  /// Returns true once, when the process has ended.
  bool has_ended();
  /// Nothing is done with the process any more: it does not end even when killed.
  void abandon() { pid_ = -1; }
  /// For messages: process id, state and the kernel function that it waits in, as far as /proc tells.
  std::string where() const { return describe_process(pid_); }
  /// Its exit code, or minus the number of the signal that killed it. Valid once has_ended() has returned true.
  int status() const { return status_; }

  using Printer = std::function<void(std::FILE* to, std::string_view line)>;
  /// Prints the lines that have arrived since the last call, to stdout or stderr.
  void relay(const Printer& print);
  /// File descriptors to poll for output; -1 once closed.
  std::vector<int> pipes() const { return {out_.fd, err_.fd}; }

 private:
  struct Stream {
    int fd = -1;
    std::FILE* to = nullptr;
    std::string line = {};  ///< the part of a line that has arrived
  };
  static void relay(Stream& stream, const Printer& print);

  int64_t rank_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool stopped_ = false;
  Stream out_, err_;
};

}  // namespace scatterlm

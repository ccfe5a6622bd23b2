#pragma once
#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace scatterlm {

/// A rank as its launcher sees it: a child process, and pipes from which its output is passed on line by line.
class RankProcess {
 public:
  /// Starts this program as a child. The environment entries ("NAME=value") override those of this process.
  RankProcess(int64_t rank, const std::vector<std::string>& arguments, const std::vector<std::string>& environment);
  /// Kills the process if it still runs.
  ~RankProcess();
  RankProcess(RankProcess&&) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;

  int64_t rank() const { return rank_; }
  bool running() const { return pid_ > 0; }
  void send(int signal) const;
  /// Returns true once, when the process has ended.
  bool has_ended();
  /// Its exit code, or minus the number of the signal that killed it. Valid once has_ended() has returned true.
  int status() const { return status_; }

  /// Prints the lines that have arrived since the last call.
  void relay();
  /// File descriptors to poll for output; -1 once closed.
  std::vector<int> pipes() const { return {out_.fd, err_.fd}; }

 private:
  struct Stream {
    int fd = -1;
    std::FILE* to = nullptr;
    std::string line = {};  ///< the part of a line that has arrived
  };
  void relay(Stream& stream) const;
  void print(Stream& stream, std::string_view line) const;

  int64_t rank_;
  pid_t pid_ = -1;
  int status_ = 0;
  Stream out_, err_;
};

}  // namespace scatterlm

#pragma once
#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace scatterlm {

/// A rank as seen by its launcher: a child process, and pipes from which its lines are passed on.
class RankProcess {
 public:
  /// Runs this program again. Environment entries ("NAME=value") come before those that this process has.
  RankProcess(int64_t rank, const std::vector<std::string>& arguments, const std::vector<std::string>& environment);
  /// Kills what still runs.
  ~RankProcess();
  RankProcess(RankProcess&&) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;

  int64_t rank() const { return rank_; }
  bool running() const { return pid_ > 0; }
  void send(int signal) const;
  /// Notices the end of the process. Returns true once, when it has ended.
  bool has_ended();
  /// Valid afterwards: its exit code, or minus the number of the signal that killed it.
  int status() const { return status_; }

  /// Passes on what has arrived, line by line.
  void relay();
  /// Files to poll for something to relay; closed ones are -1.
  std::vector<int> pipes() const { return {out_.fd, err_.fd}; }

 private:
  struct Stream {
    int fd = -1;
    std::FILE* to = nullptr;
    std::string line = {};  ///< as far as it has arrived
  };
  void relay(Stream& stream) const;
  void print(Stream& stream, std::string_view line) const;

  int64_t rank_;
  pid_t pid_ = -1;
  int status_ = 0;
  Stream out_, err_;
};

}  // namespace scatterlm

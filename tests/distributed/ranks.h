// Runs a function on several ranks, each a process of its own.
#pragma once
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "lib/distributed/comm.h"
#include "lib/distributed/rendezvous.h"

namespace scatterlm::test {

/// What became of a rank: its exit code, or minus the number of the signal that ended it.
using ExitCodes = std::vector<int>;

/// A store in a process of its own: the one that forks ranks must have no thread, whose locks they would inherit.
class StoreProcess {
 public:
  StoreProcess() {
    setenv("RES_OPTIONS", "timeout:1 attempts:1", 1);  // c10d asks for the name of each address that it connects to
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    pid_ = fork();
    if (pid_ == 0) {
      const StoreServer store;
      const int64_t port = store.port();
      if (write(ends[1], &port, sizeof(port)) == sizeof(port)) pause();
      _exit(0);
    }
    close(ends[1]);
    const bool told = read(ends[0], &port_, sizeof(port_)) == sizeof(port_);
    close(ends[0]);
    if (!told) throw std::runtime_error("no store");
  }
  ~StoreProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  int64_t port() const { return port_; }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
  int64_t port_ = 0;
};

struct Ranks {
  StoreProcess store;
  CommOptions options{.start_timeout_s = 10, .timeout_s = 10};

  explicit Ranks(int64_t count) {
    options.launch_env.size = options.launch_env.local_size = count;
    options.launch_env.port = store.port();
    options.launch_env.hosted_store = true;
  }

  /// Rank r calls body(options of r) and returns whether all was well. An exception is exit code 9.
  ExitCodes run_with_options(const std::function<bool(CommOptions)>& body) {
    std::vector<pid_t> children;
    for (int64_t rank = 0; rank < options.launch_env.size; ++rank) {
      const pid_t child = fork();
      if (child == 0) _exit(run_child(rank, body));
      children.push_back(child);
    }
    ExitCodes codes;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);  // in a test that is about to fail
    for (const pid_t child : children) {
      int status = 0;
      while (waitpid(child, &status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > deadline) kill(child, SIGKILL);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    }
    options.launch_env.restart++;  // the ranks of the next run have keys of their own in the store
    return codes;
  }

  ExitCodes run(const std::function<bool(Comm&)>& body) {
    return run_with_options([&](const CommOptions& own) {
      const auto comm = make_comm(own);
      return body(*comm);
    });
  }

 private:
  int run_child(int64_t rank, const std::function<bool(CommOptions)>& body) {
    auto own = options;
    own.launch_env.rank = own.launch_env.local_rank = rank;
    try {
      return body(own) ? 0 : 1;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %ld: %s\n", rank, error.what());  // Catch2's JUnit reporter keeps what goes to std::cerr
      return 9;
    }
  }
};

}  // namespace scatterlm::test

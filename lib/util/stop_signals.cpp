#include "lib/util/stop_signals.h"

#include <signal.h>

#include <chrono>

namespace scatterlm {
namespace {

sigset_t stop_signal_set() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : stop_signals()) sigaddset(&set, number);
  return set;
}

}  // namespace

std::vector<int> stop_signals() {
  std::vector<int> result{SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) result.push_back(SIGHUP);
  return result;
}

void block_stop_signals() {
  const sigset_t set = stop_signal_set();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void unblock_stop_signals() {
  const sigset_t set = stop_signal_set();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

bool Interrupts::is_second() {
  constexpr int64_t kSame_ns = 500'000'000;
  const int64_t now_ns = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  int64_t first_ns = 0;
  return !first_ns_.compare_exchange_strong(first_ns, now_ns) && now_ns - first_ns > kSame_ns;
}

}  // namespace scatterlm

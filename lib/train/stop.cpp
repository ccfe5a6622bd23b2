#include "lib/train/stop.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>

#include "lib/util/stop_signals.h"

namespace scatterlm {
namespace {

volatile std::sig_atomic_t received = 0;  // a handler can reach nothing else
Interrupts interrupts;

/// A repeated signal asks for nothing new: a batch system, a control group and a launcher may each send the same one.
void on_signal(int number) {
  if (number == SIGINT && interrupts.is_second()) {
    for (const char* part : {"scatterlm: error: ", kInterruptedTwice, "\n"}) {
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, part, std::strlen(part));
    }
    _exit(128 + SIGINT);
  }
  if (received == 0) received = number;
}

}  // namespace

StopRequest::StopRequest(double max_minutes) : max_minutes_(max_minutes) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int number : stop_signals()) sigaction(number, &action, nullptr);
  unblock_stop_signals();
}

std::string StopRequest::reason() const {
  if (received != 0) return fmt::format("signal {}", strsignal(received));
  const std::chrono::duration<double, std::ratio<60>> minutes = std::chrono::steady_clock::now() - start_;
  if (max_minutes_ > 0 && minutes.count() >= max_minutes_) return fmt::format("train.max_minutes {} is used up", max_minutes_);
  return "";
}

}  // namespace scatterlm

#include "lib/util/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "lib/util/terminal.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

using namespace std::chrono_literals;

std::string amount(double value, const std::string& unit) {
  return unit == "bytes" ? format_bytes(value) : fmt::format("{} {}", format_count(value), unit);
}

void write_all(int fd, const std::string& text) {
  // A terminal that went away must not end the work that reports to it.
  [[maybe_unused]] const ssize_t written = write(fd, text.data(), text.size());
}

}  // namespace

std::string progress_line(const std::string& what, int64_t done, int64_t total, const std::string& unit, double seconds,
                          int64_t width) {
  const double share = total > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 1.0;
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  const double left = share > 0 ? seconds * (1 - share) / share : std::numeric_limits<double>::infinity();
  return fit_line(
      {{fmt::format("{}: {:.0f}%", what, 100 * share), 0},
       {fmt::format("{} of {}", amount(static_cast<double>(done), unit), amount(static_cast<double>(total), unit)), 3},
       {fmt::format("{}/s", amount(rate, unit)), 2},
       {fmt::format("eta {}", format_duration(left)), 1}},
      width);
}

Progress::Progress(std::string what, int64_t total, std::string unit, int fd)
    : what_(std::move(what)), total_(total), unit_(std::move(unit)), fd_(fd), start_(Clock::now()) {
  next_ = start_ + (terminal_width(fd) ? 100ms : 10s);
}

Progress::~Progress() {
  if (line_open_) write_all(fd_, "\n");
}

void Progress::update(int64_t done) {
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  if (const auto width = terminal_width(fd_)) {
    write_all(fd_, fmt::format("\r{}\x1b[K", progress_line(what_, done, total_, unit_, seconds, *width - 1)));
    line_open_ = true;
    next_ = now + 100ms;
  } else {
    write_all(fd_, progress_line(what_, done, total_, unit_, seconds, std::numeric_limits<int64_t>::max()) + "\n");
    next_ = now + 10s;
  }
}

void Progress::finish() {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double rate = seconds > 0 ? static_cast<double>(total_) / seconds : 0;
  write_all(fd_, fmt::format("{}{}: {} in {} ({}/s)\n", line_open_ ? "\r\x1b[K" : "", what_,
                             amount(static_cast<double>(total_), unit_), format_duration(seconds), amount(rate, unit_)));
  line_open_ = false;
}

}  // namespace scatterlm

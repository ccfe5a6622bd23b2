// Progress of a long loop with the time that is left.
#pragma once
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace scatterlm {

/// On a terminal one line that is rewritten at most ten times a second and fits its width; in a pipe a plain line every
/// ten seconds. Both get one line at the end with total, time and rate. Use from one thread.
///
///     Progress progress("preparing", total_bytes, "bytes");
///     for (...) progress.update(bytes_so_far);
///     progress.finish();
class Progress {
 public:
  /// unit: "bytes" gets binary prefixes, anything else ("tokens", "files") decimal ones.
  Progress(std::string what, int64_t total, std::string unit, int fd = STDERR_FILENO);
  ~Progress();  ///< ends an open line, so that an error starts on its own
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int64_t done);
  void finish();  ///< the loop did `total`

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  int64_t total_;
  std::string unit_;
  int fd_;
  Clock::time_point start_;
  Clock::time_point next_;
  bool line_open_ = false;
};

/// The text of an update: "preparing: 45% | 16.6 MiB of 37 MiB | 12.1 MiB/s | eta 2s".
std::string progress_line(const std::string& what, int64_t done, int64_t total, const std::string& unit, double seconds,
                          int64_t width);

}  // namespace scatterlm

#include "lib/util/progress.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>

#include "lib/util/terminal.h"
#include "tests/catch.h"
#include "tests/terminal.h"

using namespace scatterlm;

namespace {

/// Both ends of a pipe; what is written to `write_end` comes out of drain().
struct Pipe {
  int read_end = -1, write_end = -1;

  Pipe() {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    read_end = ends[0];
    write_end = ends[1];
  }
  Pipe(const Pipe&) = delete;
  ~Pipe() {
    close(read_end);
    close(write_end);
  }

  std::string drain() const {
    REQUIRE(fcntl(read_end, F_SETFL, O_NONBLOCK) == 0);
    char buffer[4096];
    std::string text;
    for (ssize_t n; (n = read(read_end, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
    return text;
  }
};

}  // namespace

TEST_CASE("progress lines") {
  const int64_t mib = 1 << 20;
  REQUIRE(progress_line("preparing", 16 * mib, 64 * mib, "bytes", 2, 100) ==
          "preparing: 25% | 16 MiB of 64 MiB | 8 MiB/s | eta 6.0s");
  REQUIRE(progress_line("preparing", 16 * mib, 64 * mib, "bytes", 2, 40) == "preparing: 25% | 8 MiB/s | eta 6.0s");
  REQUIRE(progress_line("preparing", 16 * mib, 64 * mib, "bytes", 2, 30) == "preparing: 25% | eta 6.0s");
  REQUIRE(progress_line("evaluating", 0, 500000, "tokens", 0, 100) ==
          "evaluating: 0% | 0 tokens of 500k tokens | 0 tokens/s | eta ?");
  REQUIRE(progress_line("evaluating", 0, 0, "tokens", 1, 100) ==
          "evaluating: 100% | 0 tokens of 0 tokens | 0 tokens/s | eta 0.0s");
}

TEST_CASE("in a pipe a short loop leaves one plain line") {
  const Pipe channel;
  REQUIRE(!terminal_width(channel.write_end));
  Progress progress("preparing", 1000, "files", channel.write_end);
  for (int64_t i = 0; i <= 1000; ++i) progress.update(i);
  progress.finish();
  const std::string text = channel.drain();
  REQUIRE_THAT(text, ContainsSubstring("preparing: 1k files in "));
  REQUIRE(text.find_first_of("\r\x1b") == std::string::npos);
  REQUIRE(std::count(text.begin(), text.end(), '\n') == 1);
}

TEST_CASE("on a terminal one line is rewritten at most ten times a second within its width") {
  const test::Terminal channel(30);
  REQUIRE(terminal_width(channel.fd()) == 30);
  const auto start = std::chrono::steady_clock::now();
  Progress progress("preparing", 100, "files", channel.fd());
  for (int64_t i = 0; i < 50; ++i) {
    progress.update(i);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const auto tenths = (std::chrono::steady_clock::now() - start) / std::chrono::milliseconds(100);
  const std::string updates = channel.drain();
  const auto rewrites = std::count(updates.begin(), updates.end(), '\r');
  REQUIRE(rewrites >= 1);
  REQUIRE(rewrites <= tenths);
  REQUIRE(updates.find('\n') == std::string::npos);
  for (size_t begin = updates.find('\r'); begin != std::string::npos; begin = updates.find('\r', begin + 1)) {
    REQUIRE(updates.find("\x1b[K", begin) - begin - 1 <= 29);
  }
  progress.finish();
  REQUIRE_THAT(channel.drain(), ContainsSubstring("\r\x1b[Kpreparing: 100 files in "));
}

TEST_CASE("an abandoned progress ends its line") {
  const test::Terminal channel(80);
  {
    Progress progress("preparing", 100, "files", channel.fd());
    std::this_thread::sleep_for(std::chrono::milliseconds(110));
    progress.update(10);
  }
  const std::string text = channel.drain();
  REQUIRE_THAT(text, ContainsSubstring("preparing: 10% | 10 files of 100 files"));
  REQUIRE(text.ends_with("\n"));
}

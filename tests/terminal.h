// A pseudo-terminal, to see what a program shows on one.
#pragma once
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/catch.h"

namespace scatterlm::test {

/// What is written to fd() or file() comes out of drain(); a line break comes as "\r\n".
class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    master_ = posix_openpt(O_RDWR | O_NOCTTY);
    REQUIRE(master_ >= 0);
    REQUIRE(grantpt(master_) == 0);
    REQUIRE(unlockpt(master_) == 0);
    // O_NOCTTY: a session without a terminal would take this one, and end with it by a hang-up.
    file_ = fdopen(open(ptsname(master_), O_RDWR | O_NOCTTY), "r+");
    REQUIRE(file_);
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    REQUIRE(ioctl(fd(), TIOCSWINSZ, &size) == 0);
    REQUIRE(fcntl(master_, F_SETFL, O_NONBLOCK) == 0);
  }
  Terminal(const Terminal&) = delete;
  ~Terminal() {
    std::fclose(file_);
    close(master_);
  }

  std::FILE* file() const { return file_; }
  int fd() const { return fileno(file_); }
  std::string drain() const {
    char buffer[4096];
    std::string text;
    for (ssize_t n; (n = read(master_, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
    return text;
  }

 private:
  int master_ = -1;
  std::FILE* file_ = nullptr;
};

}  // namespace scatterlm::test

#include "lib/util/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>

#include "lib/util/error.h"
#include "lib/util/log/log.h"

namespace scatterlm {

void print_or_warn(std::FILE* to, std::string_view text) {
  const bool warned = std::ferror(to) != 0;
  std::fwrite(text.data(), 1, text.size(), to);
  std::fflush(to);  // stdout of a job is a file: its reader wants the line now
  const int reason = errno;
  if (!warned && std::ferror(to) != 0)
    log_warning(
        fmt::format("{}: cannot write: {}; the run continues", to == stderr ? "stderr" : "stdout", std::strerror(reason)));
}

void require_printed() {
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return;
  // An earlier write may have failed, unseen; another one says why.
  const bool works_now = flushed && write(STDOUT_FILENO, "\n", 1) == 1;
  fail("stdout: cannot write: {}", works_now ? "a part of the output is lost" : std::strerror(errno));
}

}  // namespace scatterlm

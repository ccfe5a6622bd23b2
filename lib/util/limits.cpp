#include "lib/util/limits.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <thread>

namespace scatterlm {
namespace {

std::string limit_of(__rlimit_resource resource) {
  rlimit limit{};
  getrlimit(resource, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
}

}  // namespace

std::string explain_limit(int reason) {
  if (reason == EMFILE) return fmt::format("; raise the limit of open files (ulimit -n: {})", limit_of(RLIMIT_NOFILE));
  if (reason != EAGAIN) return "";
  return fmt::format("; raise the limit of processes and threads (ulimit -u: {}, or pids.max of the control group)",
                     limit_of(RLIMIT_NPROC));
}

int exhausted_limit() {
  std::array<int, 16> files;  // what failed has closed some again
  for (int& fd : files) fd = open("/", O_RDONLY | O_CLOEXEC);
  const bool no_more_files = files.back() < 0 && errno == EMFILE;
  for (const int fd : files) {
    if (fd >= 0) close(fd);
  }
  if (no_more_files) return EMFILE;
  try {
    std::thread([] {}).join();
  } catch (const std::system_error& error) {
    return error.code() == std::errc::resource_unavailable_try_again ? EAGAIN : 0;
  }
  return 0;
}

}  // namespace scatterlm

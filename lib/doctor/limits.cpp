#include "lib/doctor/limits.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <langinfo.h>
#include <locale.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>

#include "lib/util/control_group.h"
#include "lib/util/gpu.h"
#include "lib/util/limits.h"
#include "lib/util/memory.h"
#include "lib/util/text.h"

namespace scatterlm::doctor {
namespace {

constexpr double kGib = 1 << 30;

/// The soft limit; infinite where there is none.
double limit_of(__rlimit_resource resource) {
  rlimit limit{};
  getrlimit(resource, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? std::numeric_limits<double>::infinity() : static_cast<double>(limit.rlim_cur);
}

std::string count_text(double count) { return count < 1e15 ? fmt::format("{:.0f}", count) : "unlimited"; }
std::string size_text(double bytes) { return bytes < 1e15 ? format_bytes(bytes) : "unlimited"; }

Finding check_open_files() {
  // LibTorch, CUDA and NCCL open some hundred; with Linux's usual 1024 a machine of eight GPUs has room.
  constexpr double kEnough = 1024, kLeast = 256;
  const double limit = limit_of(RLIMIT_NOFILE);
  Finding finding{.subject = "open files", .text = fmt::format("up to {}", count_text(limit))};
  const char* advice = "ulimit -n 65536";
  if (limit < kLeast) return {finding.subject, Health::kFailed, finding.text + ", which a run exceeds", advice};
  if (limit < kEnough) return {finding.subject, Health::kWarning, finding.text + ", which NCCL may exceed", advice};
  return finding;
}

Finding check_processes() {
  constexpr double kEnough = 1024;  // threads: ranks x (cores + some 20 of CUDA, NCCL and our own)
  const double limit = limit_of(RLIMIT_NPROC);
  const auto group = group_room("pids");
  const double room = std::min(limit, group.value_or(limit));
  Finding finding{.subject = "processes",
                  .text = fmt::format("up to {} processes and threads of this user{}", count_text(limit),
                                      group ? fmt::format(", {:.0f} more in this control group", *group) : "")};
  const char* advice = "ulimit -u unlimited, or a larger pids.max of the control group (docker run --pids-limit=-1)";
  if (exhausted_limit() == EAGAIN) return {finding.subject, Health::kFailed, "no more threads can be started", advice};
  if (room < kEnough) return {finding.subject, Health::kWarning, finding.text, advice};
  return finding;
}

Finding check_file_size(const Needs& needs) {
  const double limit = limit_of(RLIMIT_FSIZE);
  Finding finding{.subject = "file size", .text = size_text(limit)};
  if (std::isinf(limit)) return finding;
  const bool too_small = limit < needs.checkpoint_bytes;
  return {finding.subject, too_small ? Health::kFailed : Health::kWarning,
          fmt::format("files of up to {}{}", size_text(limit),
                      too_small ? fmt::format(", a checkpoint has {}", size_text(needs.checkpoint_bytes))
                                : ": a larger checkpoint, token file or log cannot be written"),
          "ulimit -f unlimited"};
}

Finding check_locked_memory() {
  const double limit = limit_of(RLIMIT_MEMLOCK);
  Finding finding{.subject = "locked memory", .text = size_text(limit)};
  // NCCL registers its buffers with InfiniBand's cards, which counts; CUDA's pinned memory does not.
  if (access("/dev/infiniband", F_OK) != 0 || limit > 64 * kGib) return finding;
  return {finding.subject, Health::kWarning, finding.text + ", of which NCCL needs gigabytes over InfiniBand",
          "ulimit -l unlimited"};
}

/// Bytes that the machine says are available to programs.
std::optional<double> available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) return 1024 * std::strtod(line.c_str() + sizeof("MemAvailable:"), nullptr);
  }
  return std::nullopt;
}

Finding check_memory(const Needs& needs) {
  const auto total = static_cast<double>(total_memory_bytes(at::kCPU));  // of the control group, where that has less
  double available = available_memory().value_or(total);
  const auto limit = group_room("memory");
  if (limit) available = std::min(available, *limit);
  Finding finding{.subject = "memory",
                  .text = fmt::format("{} of {} available{}", format_bytes(std::max(0.0, available)), format_bytes(total),
                                      limit ? ", by the limit of the control group" : "")};
  const char* advice = "end what takes it, or raise the limit (memory.max; docker run --memory)";
  if (needs.memory_bytes > available) {
    return {finding.subject, Health::kFailed,
            fmt::format("{}, the ranks of this machine need {}", finding.text, format_bytes(needs.memory_bytes)), advice};
  }
  if (available < 2 * kGib) return {finding.subject, Health::kWarning, finding.text, advice};
  return finding;
}

Finding check_shared_memory() {
  constexpr double kEnough = kGib / 4, kLeast = 16 << 20;  // of NCCL between GPUs that do not reach each other directly
  Finding finding{.subject = "shared memory"};
  const char* advice = "make /dev/shm larger: mount -o remount,size=4G /dev/shm (docker run --shm-size=4g)";
  if (gpus().size() < 2) {
    finding.text = "/dev/shm is not needed: only NCCL uses it, between GPUs";
    return finding;
  }
  struct statvfs info {};
  if (statvfs("/dev/shm", &info) != 0)
    return {finding.subject, Health::kFailed, fmt::format("/dev/shm: {}", std::strerror(errno)), "mount a tmpfs at /dev/shm"};
  const double free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  finding.text = fmt::format("/dev/shm has {} free", format_bytes(free));
  if (access("/dev/shm", W_OK) != 0) return {finding.subject, Health::kFailed, "/dev/shm cannot be written", advice};
  if (free < kLeast) return {finding.subject, Health::kFailed, finding.text, advice};
  if (free < kEnough) return {finding.subject, Health::kWarning, finding.text + ", which NCCL may exceed", advice};
  return finding;
}

/// Our own numbers do not depend on it; names of files are shown in it, and Python stops at one that does not exist.
Finding check_locale() {
  Finding finding{.subject = "locale"};
  const auto wanted = [] {
    for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
      if (const char* value = std::getenv(variable); value && *value) return std::string(variable) + "=" + value;
    }
    return std::string("none set");
  }();
  const locale_t locale = newlocale(LC_ALL_MASK, "", nullptr);
  if (locale == nullptr)
    return {finding.subject, Health::kWarning, wanted + " is not installed",
            "choose one of `locale -a`, for example LC_ALL=C.UTF-8"};
  const std::string encoding = nl_langinfo_l(CODESET, locale);
  freelocale(locale);
  finding.text = fmt::format("{}, {}", wanted, encoding);
  return finding;
}

Finding check_clock() {
  Finding finding{.subject = "clock"};
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  struct stat program {};
  stat("/proc/self/exe", &program);
  finding.text = fmt::format("{:%F %T} UTC", now);
  if (now.time_since_epoch().count() < program.st_mtim.tv_sec) {
    return {finding.subject, Health::kWarning, finding.text + ", before this program was built: times in logs will be wrong",
            "set the clock: timedatectl set-ntp true"};
  }
  timex state{};
  const bool synchronised = adjtimex(&state) >= 0 && (state.status & STA_UNSYNC) == 0;
  finding.text += synchronised ? ", synchronised" : ", not known to be synchronised with other machines";
  return finding;
}

}  // namespace

std::vector<Finding> check_limits(const Needs& needs) {
  return {check_open_files(),  check_processes(),     check_file_size(needs), check_locked_memory(),
          check_memory(needs), check_shared_memory(), check_locale(),         check_clock()};
}

}  // namespace scatterlm::doctor

#include "lib/doctor/storage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "lib/util/text.h"

namespace scatterlm::doctor {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kBlock = 16 << 20, kMostBlocks = 32;
constexpr double kLongest_s = 2;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// The folder itself or the first above it that exists.
std::string existing_folder(const std::string& folder) {
  std::error_code error;
  fs::path path = fs::absolute(folder, error);
  while (!fs::exists(path, error) && path.has_relative_path()) path = path.parent_path();
  const fs::path resolved = fs::canonical(path, error);
  return (error ? path : resolved).string();
}

/// A file that is gone when it is closed, however this process ends; -1 and errno.
int open_nameless(const std::string& folder) {
  const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file;
  std::string name = folder + "/.doctor_XXXXXX";  // network file systems have no files without names
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) unlink(name.c_str());
  return named;
}

struct Speed {
  double bytes = 0, write_s = 0, read_s = 0;
  int error = 0;  ///< errno of what failed
};

Speed measure(int file) {
  const std::vector<char> block(kBlock, '\x5a');
  std::vector<char> back(kBlock);
  Speed speed;
  const auto failed = [&](int error) {
    speed.error = error;
    return speed;
  };
  auto start = Clock::now();
  for (size_t i = 0; i < kMostBlocks && seconds_since(start) < kLongest_s; ++i) {
    for (size_t done = 0; done < kBlock;) {
      const ssize_t written = write(file, block.data() + done, kBlock - done);
      if (written <= 0) return failed(written < 0 ? errno : ENOSPC);
      done += static_cast<size_t>(written);
      speed.bytes += static_cast<double>(written);
    }
    if (fsync(file) != 0)
      return failed(errno);  // as a rank does with its file, but at once: a slow disk shall not take minutes
  }
  speed.write_s = seconds_since(start);
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);  // from the disk, not from the page cache
  start = Clock::now();
  double read_bytes = 0;
  for (lseek(file, 0, SEEK_SET); read_bytes < speed.bytes;) {
    const ssize_t size = read(file, back.data(), kBlock);
    if (size <= 0 || std::memcmp(back.data(), block.data(), static_cast<size_t>(size)) != 0)
      return failed(size < 0 ? errno : EIO);
    read_bytes += static_cast<double>(size);
  }
  speed.read_s = seconds_since(start);
  return speed;
}

}  // namespace

Finding check_storage(const Needs& needs) {
  constexpr double kSlow = 50e6;  // bytes/s
  const std::string folder = existing_folder(needs.folder);
  Finding finding{.subject = "storage", .text = folder};
  const auto failed = [&](const std::string& what, const std::string& advice) {
    return Finding{finding.subject, Health::kFailed, finding.text + what, advice};
  };
  const char* elsewhere = "make room, or choose another run.dir (--run-dir)";
  const int file = open_nameless(folder);
  if (file < 0) return failed(fmt::format(": cannot write: {}", std::strerror(errno)), "choose another run.dir (--run-dir)");
  const Speed speed = measure(file);
  struct statvfs info {};
  statvfs(folder.c_str(), &info);
  close(file);
  if (speed.error == EFBIG) return failed(": cannot write: File too large", "ulimit -f unlimited");
  if (speed.error != 0) return failed(fmt::format(": cannot write or read: {}", std::strerror(speed.error)), elsewhere);

  const double free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize) + speed.bytes,
               wanted = needs.checkpoint_bytes * static_cast<double>(needs.num_checkpoints),
               per_second = speed.bytes / speed.write_s;
  finding.text = fmt::format("{}: writes {}/s with fsync, reads {}/s, {} free", folder, format_bytes(per_second),
                             format_bytes(speed.bytes / std::max(speed.read_s, 1e-9)), format_bytes(free));
  if (needs.checkpoint_bytes > 0) {
    finding.text += fmt::format("; {} for {} checkpoint{} of {} each, {} to write one", format_bytes(wanted),
                                needs.num_checkpoints, needs.num_checkpoints == 1 ? "" : "s",
                                format_bytes(needs.checkpoint_bytes), format_duration(needs.checkpoint_bytes / per_second));
  }
  if (wanted > free) return failed("", elsewhere);
  if (per_second < kSlow)
    return {finding.subject, Health::kWarning, finding.text, "use a faster disk, or checkpoint.async: true"};
  return finding;
}

}  // namespace scatterlm::doctor

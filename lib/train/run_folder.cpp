#include "lib/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "lib/config/keys.h"
#include "lib/train/checkpointing.h"
#include "lib/util/error.h"
#include "lib/util/file.h"
#include "lib/util/hash.h"

namespace scatterlm {

std::string run_folder(const RunConfig& config, const std::string& override_dir) {
  return override_dir.empty() ? (std::filesystem::path(config.dir) / config.name).string() : override_dir;
}

RunLock::RunLock(const std::string& run_dir) : path_(run_dir + "/.lock") {
  namespace fs = std::filesystem;
  std::error_code error;
  for (auto folder = fs::absolute(run_dir); !fs::exists(folder, error); folder = folder.parent_path()) made_.push_back(folder);
  fs::create_directories(run_dir, error);
  if (error) fail_user("{}: cannot create the run folder: {}; give another one with --run-dir", run_dir, error.message());
  constexpr auto kPatience = std::chrono::seconds(5);
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (!try_lock()) {
    if (std::chrono::steady_clock::now() >= give_up)
      fail_user("{}: another process trains in this folder; wait until it ends, or give another --run-dir", run_dir);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

bool RunLock::try_lock() {
  fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_user("{}: cannot write: {}; give another --run-dir", path_, std::strerror(errno));
  const bool busy = flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  struct stat mine {
  }, there{};
  fstat(fd_, &mine);
  if (!busy && stat(path_.c_str(), &there) == 0 && there.st_ino == mine.st_ino) return true;
  close(fd_);  // or who had it has removed the file since
  return false;
}

RunLock::~RunLock() {
  unlink(path_.c_str());
  close(fd_);
  for (const auto& folder : made_) rmdir(folder.c_str());
}

std::optional<CheckpointReader> checkpoint_to_resume(const std::string& run_dir, const std::string& resume, bool restarted) {
  if (resume == "auto" || (restarted && !list_checkpoints(run_dir).empty())) return open_latest_checkpoint(run_dir);
  std::optional<CheckpointReader> reader;
  if (resume != "none") reader.emplace(open_checkpoint(resume));
  const auto steps = list_checkpoints(run_dir);
  const int64_t start = reader ? reader->contents().step : 0;
  const auto same = [](const std::filesystem::path& a, const std::filesystem::path& b) {
    return std::filesystem::weakly_canonical(a) == std::filesystem::weakly_canonical(b);
  };
  const bool goes_on = reader && same(std::filesystem::path(reader->path()).parent_path(), run_dir);
  if (!steps.empty() && !(goes_on && steps.back() <= start)) {
    fail_user(
        "{}: holds a checkpoint of step {}, so --resume {} cannot start from step {} here; give another --run-dir, or --resume auto",
        run_dir, steps.back(), resume, start);
  }
  return reader;
}

std::string run_identity(const Config& config, const std::string& override_dir, const std::string& resume) {
  std::string text =
      fmt::format("program = {}\n--run-dir = {}\n--resume = {}\n", hash_hex(read_file("/proc/self/exe")), override_dir, resume);
  for (const auto& key : list_keys(config)) {
    if (!key.is_group) text += fmt::format("{} = {}\n", key.path, key.value);
  }
  return text;
}

}  // namespace scatterlm

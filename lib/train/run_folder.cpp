#include "lib/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>

#include "lib/config/keys.h"
#include "lib/train/open_checkpoint.h"
#include "lib/util/file.h"
#include "lib/util/file_error.h"
#include "lib/util/hash.h"
#include "lib/util/log/log.h"

namespace scatterlm {

std::string run_folder(const RunConfig& config, const std::string& override_dir) {
  return override_dir.empty() ? (std::filesystem::path(config.dir) / config.name).string() : override_dir;
}

void check_lock_timeout(const CheckpointConfig& config, int64_t ranks) {
  if (ranks == 1 || config.lock_timeout_s < config.timeout_s) return;
  fail_user(
      "'checkpoint.lock_timeout_s: {:g}' must be below 'checkpoint.timeout_s: {:g}' with {} ranks: the others wait for rank 0, "
      "which waits for the run's folder, no longer than the latter",
      config.lock_timeout_s, config.timeout_s, ranks);
}

namespace {

constexpr const char* kAnother = "; give another --run-dir";

}  // namespace

RunLock::RunLock(const std::string& run_dir, double timeout_s, const StopRequest& stop)
    : run_dir_(run_dir), path_(run_dir + "/.lock") {
  namespace fs = std::filesystem;
  std::error_code error;
  for (auto folder = fs::absolute(run_dir); !fs::exists(folder, error); folder = folder.parent_path()) made_.push_back(folder);
  const auto start = std::chrono::steady_clock::now();
  for (bool waited = false; !try_lock(); waited = true) {
    if (std::chrono::steady_clock::now() - start >= std::chrono::duration<double>(timeout_s))
      fail_user("{}: another process trains in this folder; wait until it ends, or give another --run-dir", run_dir);
    if (const auto reason = stop.reason(); !reason.empty())
      throw Error(fmt::format("{}: {} while another process trains in this folder", run_dir, reason), kExitRestart);
    if (!waited) {
      log_info(
          fmt::format("{}: another process trains in this folder, or its machine has just gone down; waiting up to {:g} s "
                      "for its end (checkpoint.lock_timeout_s)",
                      run_dir, timeout_s));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  remove_unfinished(run_dir);
}

bool RunLock::try_lock() {
  std::error_code error;
  std::filesystem::create_directories(run_dir_, error);  // who had the lock may have removed the folder as well
  if (error) fail_file(run_dir_, "create the run folder", error.value(), kAnother);
  fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0 && errno == ENOENT) return false;
  if (fd_ < 0) fail_file(path_, "write", errno, kAnother);
  const bool busy = flock(fd_, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR);
  if (!busy && holds_lock()) return true;
  close(fd_);  // or who had it has removed the file since
  return false;
}

bool RunLock::holds_lock() const {
  struct stat mine {
  }, there{};
  return fstat(fd_, &mine) == 0 && stat(path_.c_str(), &there) == 0 && there.st_ino == mine.st_ino &&
         there.st_dev == mine.st_dev;
}

void RunLock::check() const {
  errno = 0;
  if (holds_lock()) return;
  if (errno != 0 && !is_mistake_in_path(errno)) return;  // storage that fails says so at the next write
  fail_user(
      "{}: the folder of the run, or its file .lock, was renamed or removed during the training, which ends here; move it "
      "back, and the same command continues from its newest checkpoint",
      run_dir_);
}

RunLock::~RunLock() {
  if (holds_lock()) {
    unlink(path_.c_str());
    for (const auto& folder : made_) rmdir(folder.c_str());
  }
  close(fd_);
}

namespace {

bool same_place(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code error;
  return std::filesystem::weakly_canonical(a, error) == std::filesystem::weakly_canonical(b, error);
}

/// Throws Error if the run folder holds a later checkpoint than the named one, from which the run would go on.
void check_is_latest(const ResumeRequest& request, const CheckpointReader* reader) {
  const auto steps = list_checkpoints(request.run_dir);
  const int64_t start = reader ? reader->contents().step : 0;
  const bool goes_on = reader && same_place(std::filesystem::path(reader->path()).parent_path(), request.run_dir);
  if (steps.empty() || (goes_on && steps.back() <= start)) return;
  fail_user(
      "{}: holds a checkpoint of step {}, so --resume {} cannot start from step {} here; give another --run-dir, or --resume auto",
      request.run_dir, steps.back(), request.resume, start);
}

}  // namespace

std::optional<CheckpointReader> checkpoint_to_resume(const ResumeRequest& request, Comm& comm, at::Device device) {
  const StorageScope storage(comm);
  const bool leads = comm.rank() == 0;
  bool own = false;  // whatever the run folder holds
  std::vector<std::string> paths;
  if (leads) {
    const bool has_own = !list_checkpoints(request.run_dir).empty();
    own = request.resume == "auto" || (request.restarted && has_own);
    if (own ? has_own : request.resume != "none") paths = find_checkpoints(own ? request.run_dir : request.resume);
  }
  auto newest = open_newest_checkpoint(paths, comm, device);
  if (leads && !own) check_is_latest(request, newest ? &newest->reader : nullptr);
  if (!newest) return std::nullopt;
  if (own && !request.dry_run) {
    for (const auto& path : newest->rejected) log_warning(fmt::format("{}: set aside as {}", path, set_checkpoint_aside(path)));
  }
  return std::move(newest->reader);
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

#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/config/config.h"
#include "lib/distributed/comm.h"
#include "lib/io/checkpoint.h"
#include "lib/train/stop.h"

namespace scatterlm {

/// Folder of a run: `override_dir` if given, else run.dir/run.name.
std::string run_folder(const RunConfig& config, const std::string& override_dir);

/// Throws Error (exit code 2) if rank 0 may wait for the folder's lock for longer than the other ranks wait for rank 0.
void check_lock_timeout(const CheckpointConfig& config, int64_t ranks);

/// No other process trains in this folder as long as this lives, or this process: a locked file, on NFS for other machines too.
/// Where the file system has no locks nothing is held.
class RunLock {
 public:
  /// Makes the folder, or removes what a run that crashed there has left unfinished. Waits, with a message, for another process
  /// that trains there; throws Error if it has not ended after timeout_s seconds (exit code 2), or if this one is asked to stop
  /// (kExitRestart). One whose machine went down keeps an NFS folder locked until its lease ends, 90 s by default.
  RunLock(const std::string& run_dir, double timeout_s, const StopRequest& stop);
  /// Removes what it has made if nothing has come into it.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Throws Error if the folder has been renamed or removed since: what is written under its name now would be lost, or lie
  /// apart from the rest.
  void check() const;

 private:
  bool try_lock();
  bool holds_lock() const;

  std::string run_dir_, path_;
  std::vector<std::filesystem::path> made_;  ///< folders, the innermost first
  int fd_;
};

struct ResumeRequest {
  std::string run_dir;
  std::string resume;      ///< --resume: auto (the newest good checkpoint of the run folder, if it has any), none, or a folder
  bool restarted = false;  ///< by its launcher: it continues from what it saved before, if it had come that far
  bool dry_run = false;    ///< changes nothing on disk
};

/// The checkpoint to resume from, which rank 0 chooses. Those of the run folder that are newer and cannot be read are set
/// aside, so that nothing takes them for the run's newest. Throws Error if the run folder holds a later checkpoint than the
/// named one, which training on would contradict. All ranks call it; `device`: that of the ranks' tensors.
std::optional<CheckpointReader> checkpoint_to_resume(const ResumeRequest& request, Comm& comm, at::Device device);

/// What must be the same on every rank of a run: program, options, every key; one a line.
std::string run_identity(const Config& config, const std::string& override_dir, const std::string& resume);

}  // namespace scatterlm

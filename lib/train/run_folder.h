#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/config/config.h"
#include "lib/io/checkpoint.h"

namespace scatterlm {

/// Folder of a run: `override_dir` if given, else run.dir/run.name.
std::string run_folder(const RunConfig& config, const std::string& override_dir);

/// No other process trains in this folder as long as this lives, or this process: a locked file, on NFS for other machines too.
/// Where the file system has no locks nothing is held.
class RunLock {
 public:
  /// Makes the folder. Throws Error (exit code 2) if another process trains there and does not end within seconds, as one
  /// that has just been killed does.
  explicit RunLock(const std::string& run_dir);
  /// Removes what it has made if nothing has come into it.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  bool try_lock();

  std::string path_;
  std::vector<std::filesystem::path> made_;  ///< folders, the innermost first
  int fd_;
};

/// The checkpoint that --resume names: auto (the run's newest good one, if it has any), none, or a folder. Throws Error if the
/// run folder holds a later checkpoint than that, which training on would contradict. A run that its launcher has started again
/// (`restarted`) continues from what it saved before, if it had come that far.
std::optional<CheckpointReader> checkpoint_to_resume(const std::string& run_dir, const std::string& resume, bool restarted);

/// What must be the same on every rank of a run: program, options, every key; one a line.
std::string run_identity(const Config& config, const std::string& override_dir, const std::string& resume);

}  // namespace scatterlm

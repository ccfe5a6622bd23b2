#include "lib/train/open_checkpoint.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>

#include "lib/util/error.h"
#include "lib/util/file.h"
#include "lib/util/file_error.h"
#include "lib/util/log/log.h"

namespace scatterlm {
namespace {

namespace fs = std::filesystem;

/// Rank 0's text, on all ranks.
std::string broadcast_text(const std::string& text, Comm& comm, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kLong);  // Comm moves no bytes
  auto size = at::full({1}, std::ssize(text), options.device(device));
  comm.broadcast(size);
  auto letters = at::zeros({size.item<int64_t>()}, options);
  if (comm.rank() == 0) std::ranges::copy(text, letters.mutable_data_ptr<int64_t>());
  letters = letters.to(device);
  if (letters.numel() > 0) comm.broadcast(letters);
  letters = letters.cpu();
  std::string result;
  for (int64_t i = 0; i < letters.numel(); ++i) result += static_cast<char>(letters.const_data_ptr<int64_t>()[i]);
  return result;
}

bool any_rank(bool yes, Comm& comm, at::Device device) {
  auto votes = at::full({1}, static_cast<int64_t>(yes), at::TensorOptions().dtype(at::kLong).device(device));
  comm.all_reduce(votes);
  return votes.item<int64_t>() > 0;
}

/// Throws Error, except for a checkpoint that is damaged: `damage` says how, and nothing is returned.
std::optional<CheckpointReader> open_share(const std::string& path, const Comm& comm, std::string& damage) {
  damage.clear();
  if (comm.rank() > 0 && !is_folder(path)) {
    fail_user("rank {} does not see {}, from which rank 0 resumes; run.dir must be one folder for all ranks", comm.rank(),
              path);
  }
  try {
    return CheckpointReader(path, {comm.rank(), comm.world()});
  } catch (const AccessError&) {
    throw;  // the checkpoint may be good
  } catch (const Error& problem) {
    if (problem.code() != kExitUser) throw;  // the storage failed: likewise
    damage = problem.what();
    return std::nullopt;
  }
}

}  // namespace

std::optional<NewestCheckpoint> open_newest_checkpoint(std::vector<std::string> paths, Comm& comm, at::Device device) {
  std::vector<std::string> rejected;
  std::string damage;                            // of the last one rejected, if this rank has found it
  const auto say = [&](const char* what_next) {  // of other ranks than 0 only errors are printed
    if (!damage.empty()) (comm.rank() == 0 ? log_warning : log_error)(damage + what_next);
  };
  for (;;) {
    const auto path = broadcast_text(paths.empty() ? "" : paths.back(), comm, device);
    if (path.empty()) break;
    if (!paths.empty()) paths.pop_back();
    say("; going back to the checkpoint before it");
    auto reader = open_share(path, comm, damage);
    if (!any_rank(!reader, comm, device)) return NewestCheckpoint{std::move(*reader), std::move(rejected)};
    rejected.push_back(path);
  }
  if (rejected.empty()) return std::nullopt;
  if (rejected.size() == 1) fail_user("{}", damage.empty() ? rejected[0] + ": damaged, as another rank says" : damage);
  say("");
  fail_user("{}: none of its {} checkpoints can be read (see above); restore one, or start again in another --run-dir",
            fs::path(rejected.front()).parent_path().string(), rejected.size());
}

CheckpointReader open_checkpoint(const std::string& path) {
  return std::move(open_newest_checkpoint(find_checkpoints(path), *make_single_comm(), at::kCPU)->reader);
}

}  // namespace scatterlm

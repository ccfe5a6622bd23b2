// Saving: every rank writes its file and a note of what is in it, rank 0 joins the notes to the manifest and renames the
// folder.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>

#include "lib/io/checkpoint.h"
#include "lib/io/json.h"
#include "lib/io/manifest.h"
#include "lib/io/safetensors.h"
#include "lib/util/file.h"
#include "lib/util/file_error.h"

namespace scatterlm {
namespace {

namespace fs = std::filesystem;

/// An empty folder that is gone at the end of the scope, unless it was renamed.
struct UnfinishedFolder {
  std::string path;

  explicit UnfinishedFolder(std::string folder) : path(std::move(folder)) {
    std::error_code error;
    fs::remove_all(path, error);
    if (!error) fs::create_directory(path, error);
    if (error) fail_file(path, "create", error.value());
  }
  ~UnfinishedFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

std::string rank_file(int64_t rank) { return fmt::format("rank_{:05}.safetensors", rank); }
std::string rank_note(const std::string& folder, int64_t rank) { return fmt::format("{}/rank_{:05}.json", folder, rank); }

std::string unfinished_path(const std::string& run_dir, const std::string& path) {
  return fmt::format("{}/.tmp_{}", run_dir, fs::path(path).filename().string());
}

void check(const TensorSlice& slice) {
  const auto numel = checked_numel(slice.shape, slice.data.scalar_type());
  const bool inside = numel && slice.begin >= 0 && slice.end >= slice.begin && slice.end <= *numel;
  if (inside && slice.data.dim() == 1 && slice.data.numel() == slice.end - slice.begin) return;
  fail("[save_checkpoint] {}: elements {} to {} of shape [{}], with data of shape [{}]", quote(slice.name), slice.begin,
       slice.end, fmt::join(slice.shape, ", "), fmt::join(slice.data.sizes(), ", "));
}

/// The own file, then the own part of the manifest as a note to rank 0.
void write_rank(const std::string& folder, int64_t step, const std::vector<TensorSlice>& slices, const RankInfo& ranks) {
  const std::string file = rank_file(ranks.rank);
  Manifest note{step, ranks.world, {}, {}};
  std::vector<std::pair<std::string, at::Tensor>> stored;
  for (const auto& slice : slices) {
    check(slice);
    Manifest part{step, ranks.world, {}, {}};
    auto& tensor = part.tensors[slice.name] = {slice.data.scalar_type(), slice.shape, {{file, slice.begin, slice.end}}};
    if (slice.begin == slice.end && tensor.numel() > 0) continue;
    const std::string key = slice_key(slice.name, tensor, tensor.slices[0]);
    stored.emplace_back(key, key == slice.name ? slice.data.reshape(slice.shape) : slice.data);
    merge_manifest(note, part, "[save_checkpoint]");
  }
  const FileDigest digest = write_safetensors(folder + "/" + file, stored);
  note.files.push_back({file, digest.bytes, digest.xxh3});
  write_file_atomic(rank_note(folder, ranks.rank), dump_manifest(note));
}

/// Gives the finished folder its name. If that name is taken, the folders swap names, and the old one is removed as unfinished.
void rename_folder(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return;
  if (errno == ENOTEMPTY || errno == EEXIST) {
    if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
    // Network filesystems cannot swap: there the old one goes first.
    const std::string replaced = from + "_replaced";
    if (std::rename(to.c_str(), replaced.c_str()) == 0 && std::rename(from.c_str(), to.c_str()) == 0) {
      std::error_code ignored;
      fsync_dir(fs::path(to).parent_path());  // or a crash could lose both
      fs::remove_all(replaced, ignored);
      return;
    }
  }
  fail_file(to, "write", errno);
}

void commit(const UnfinishedFolder& folder, const std::string& path, const CheckpointContents& contents, int64_t world) {
  Manifest manifest{contents.step, world, {}, {}};
  for (int64_t rank = 0; rank < world; ++rank) {
    const std::string note = rank_note(folder.path, rank);
    // That rank says why; only it knows whether training can go on.
    if (!path_exists(note)) throw StorageError(fmt::format("{}: not saved: rank {} has not written its part", path, rank));
    merge_manifest(manifest, parse_manifest(read_file(note), note), note);
    std::error_code error;
    fs::remove(note, error);
    if (error) fail_file(note, "remove", error.value());
  }
  check_slices(manifest, path);
  const auto add = [&](const std::string& name, const std::string& text) {
    if (!is_plain_file_name(name)) fail("{}: not saved: {} is not a file name that a checkpoint has", path, name);
    const FileDigest digest = write_file_atomic(folder.path + "/" + name, text);
    manifest.files.push_back({name, digest.bytes, digest.xxh3});
  };
  add("config.yaml", contents.config_yaml);
  add("state.json", contents.state.dump(1) + "\n");
  for (const auto& [name, text] : contents.files) add(name, text);
  write_manifest(folder.path, manifest);
  rename_folder(folder.path, path);
  fsync_dir(fs::path(path).parent_path());
}

}  // namespace

std::string save_streamed_checkpoint(const std::string& run_dir, const CheckpointContents& contents,
                                     const std::vector<StreamedTensor>& tensors) {
  const std::string path = checkpoint_path(run_dir, contents.step), file = rank_file(0);
  const UnfinishedFolder folder(unfinished_path(run_dir, path));
  Manifest note{contents.step, 1, {}, {}};
  for (const auto& tensor : tensors) {
    auto& listed = note.tensors[tensor.name] = {tensor.dtype, tensor.shape, {}};
    listed.slices.push_back({file, 0, listed.numel()});
  }
  const FileDigest digest = stream_safetensors(folder.path + "/" + file, tensors);
  note.files.push_back({file, digest.bytes, digest.xxh3});
  write_file_atomic(rank_note(folder.path, 0), dump_manifest(note));
  commit(folder, path, contents, 1);
  return path;
}

std::string save_checkpoint(const std::string& run_dir, const CheckpointContents& contents,
                            const std::vector<TensorSlice>& slices, const RankInfo& ranks) {
  const std::string path = checkpoint_path(run_dir, contents.step);
  const std::string unfinished = unfinished_path(run_dir, path);
  std::optional<UnfinishedFolder> folder;  // rank 0
  std::exception_ptr error;
  const auto attempt = [&](const auto& work) {
    try {
      if (!error) work();
    } catch (...) {
      error = std::current_exception();  // the other ranks wait in the barrier
    }
  };
  if (ranks.rank == 0) attempt([&] { folder.emplace(unfinished); });
  ranks.barrier();
  attempt([&] {
    // Rank 0 says why; only it knows whether training can go on.
    if (!is_folder(unfinished)) throw StorageError(fmt::format("{}: not saved: rank 0 has not created its folder", path));
    write_rank(unfinished, contents.step, slices, ranks);
  });
  ranks.barrier();
  if (ranks.rank == 0) attempt([&] { commit(*folder, path, contents, ranks.world); });
  ranks.barrier();
  if (error) std::rethrow_exception(error);
  return path;
}

}  // namespace scatterlm

#include "lib/io/checkpoint.h"

#include <ATen/ATen.h>

#include <cerrno>
#include <charconv>

#include "lib/io/json.h"
#include "lib/io/manifest.h"
#include "lib/io/safetensors.h"
#include "lib/util/file.h"
#include "lib/util/file_error.h"
#include "lib/util/log/log.h"
#include "lib/util/similar_path.h"

namespace scatterlm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_", kUnfinished = ".tmp_", kReplaced = "_replaced";

/// The step of a folder name that checkpoint_path gives.
std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || stop != end || step < 0) return std::nullopt;
  return fs::path(checkpoint_path("", step)).filename() == name ? std::optional(step) : std::nullopt;
}

/// The step of a folder that rename_folder has taken out of the way for its successor.
std::optional<int64_t> replaced_step(const std::string& name) {
  if (!name.starts_with(kUnfinished) || !name.ends_with(kReplaced)) return std::nullopt;
  return step_of(name.substr(kUnfinished.size(), name.size() - kUnfinished.size() - kReplaced.size()));
}

/// Of the entries of a folder; none where there is no folder.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator(); entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error && error.value() != ENOENT && error.value() != ENOTDIR) fail_file(folder, "open", error.value());
  return names;
}

/// A name that can be removed at once: whoever looks meanwhile sees no half checkpoint.
void remove_folder(const fs::path& path) {
  const fs::path doomed = path.parent_path() / (std::string(kUnfinished) + "removed_" + path.filename().string());
  std::error_code error;
  fs::rename(path, doomed, error);
  if (!error) fs::remove_all(doomed, error);
  if (error) log_warning(fmt::format("{}: cannot remove: {}", path.string(), error.message()));
}

}  // namespace

std::string checkpoint_path(const std::string& run_dir, int64_t step) {
  return fmt::format("{}/{}{:08}", run_dir, kPrefix, step);
}

std::vector<int64_t> list_checkpoints(const std::string& run_dir) {
  std::vector<int64_t> steps;
  for (const auto& name : names_in(run_dir)) {
    if (const auto step = step_of(name); step && is_folder(run_dir + "/" + name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::vector<std::string> find_checkpoints(const std::string& name) {
  const std::string path = name.substr(0, name.find_last_not_of('/') + 1);  // the folder of "runs/step_00000020/" is "runs"
  if (path_exists(path + "/manifest.json")) return {path};
  if (!is_folder(path)) fail_user("{}: no such run or checkpoint folder{}", path, explain_missing_path(path));
  std::vector<std::string> paths;
  for (const int64_t step : list_checkpoints(path)) paths.push_back(checkpoint_path(path, step));
  if (paths.empty()) fail_user("{}: holds no checkpoint; train first: scatterlm train CONFIG", path);
  return paths;
}

void prune_checkpoints(const std::string& run_dir, int64_t step, int64_t keep_last, int64_t keep_every) {
  auto steps = list_checkpoints(run_dir);
  std::erase_if(steps, [step](int64_t other) { return other > step; });
  for (int64_t i = 0; i + keep_last < static_cast<int64_t>(steps.size()); ++i) {
    if (keep_every > 0 && steps[i] % keep_every == 0) continue;
    remove_folder(checkpoint_path(run_dir, steps[i]));
  }
  remove_unfinished(run_dir);
}

void remove_unfinished(const std::string& run_dir) {
  for (const auto& name : names_in(run_dir)) {
    if (!name.starts_with(kUnfinished)) continue;
    const fs::path path = fs::path(run_dir) / name;
    std::error_code error;
    const auto replaced = replaced_step(name);
    if (replaced && !path_exists(checkpoint_path(run_dir, *replaced))) {
      fs::rename(path, checkpoint_path(run_dir, *replaced), error);
    } else {
      fs::remove_all(path, error);
    }
    if (error) log_warning(fmt::format("{}: cannot remove: {}", path.string(), error.message()));
  }
}

std::string set_checkpoint_aside(const std::string& path) {
  const fs::path from(path);
  const std::string first = (from.parent_path() / ("rejected_" + from.filename().string())).string();
  std::string to = first;
  std::error_code error;
  for (int i = 2; fs::exists(fs::symlink_status(to, error)); ++i) to = fmt::format("{}_{}", first, i);
  fs::rename(from, to, error);
  if (error) fail_file(path, "rename to " + to, error.value());
  return to;
}

struct CheckpointReader::State {
  std::string path;
  Manifest manifest;
  CheckpointContents contents;
  std::map<std::string, SafetensorsFile> files;
  std::map<std::string, Logical> tensors;
  uint64_t verified_bytes = 0;

  State(const std::string& folder, const VerifyShare& share) : path(folder), manifest(read_manifest(folder)) {
    std::error_code error;
    const auto named = step_of(fs::canonical(path, error).filename().string());
    if (named && *named != manifest.step) {
      fail_user("{}: holds step {}, as its manifest.json says; rename the folder to {}", path, manifest.step,
                fs::path(checkpoint_path("", manifest.step)).filename().string());
    }
    std::map<std::string, std::string> texts;
    int64_t turn = 0;  // of the files of tensors
    for (const auto& file : manifest.files) {
      const std::string file_path = path + "/" + file.name;
      const bool is_tensors = file.name.ends_with(".safetensors");
      if (!is_tensors || turn++ % share.world == share.rank) {
        check_file(path, file);
        verified_bytes += file.bytes;
      }
      if (is_tensors) {
        files.emplace(file.name, SafetensorsFile(file_path));
      } else {
        texts.emplace(file.name, read_file(file_path));
      }
    }
    for (const char* name : {"config.yaml", "state.json"}) {
      if (!texts.count(name)) fail_user("{}/manifest.json: {} is not listed", path, name);
    }
    contents = {manifest.step, texts["config.yaml"], parse_json(texts["state.json"], path + "/state.json"), {}};
    for (auto& [name, text] : texts)
      if (name != "config.yaml" && name != "state.json") contents.files.emplace(name, std::move(text));
    for (const auto& [name, tensor] : manifest.tensors) {
      for (const auto& slice : tensor.slices) check_slice(name, tensor, slice);
      tensors.emplace(name, Logical{tensor.shape, tensor.dtype});
    }
  }

  /// Throws Error unless the tensor is there and has elements begin..end-1.
  const Manifest::Tensor& tensor(const std::string& name, int64_t begin, int64_t end) const {
    const auto found = manifest.tensors.find(name);
    if (found == manifest.tensors.end()) fail_user("{}: no tensor is named {}", path, quote(name));
    if (begin < 0 || end < begin || end > found->second.numel())
      fail("{}: tensor {} has {} elements, asked for {} to {}", path, quote(name), found->second.numel(), begin, end);
    return found->second;
  }

  /// The file has what the manifest says.
  void check_slice(const std::string& name, const Manifest::Tensor& tensor, const Manifest::Slice& slice) const {
    const std::string key = slice_key(name, tensor, slice);
    const bool whole = key == name;
    const auto file = files.find(slice.file);
    if (file != files.end()) {
      const auto entry = file->second.entries().find(key);
      const std::vector<int64_t> shape = whole ? tensor.shape : std::vector{slice.end - slice.begin};
      if (entry != file->second.entries().end() && entry->second.dtype == tensor.dtype && entry->second.shape == shape) return;
    }
    fail_user("{}/{}: does not hold tensor {} as the manifest says", path, slice.file, quote(key));
  }
};

CheckpointReader::CheckpointReader(const std::string& path, const VerifyShare& share)
    : state_(std::make_unique<State>(path, share)) {}
CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;

const std::string& CheckpointReader::path() const { return state_->path; }
const CheckpointContents& CheckpointReader::contents() const { return state_->contents; }
uint64_t CheckpointReader::verified_bytes() const { return state_->verified_bytes; }
const std::map<std::string, CheckpointReader::Logical>& CheckpointReader::tensors() const { return state_->tensors; }

void CheckpointReader::read_into(const std::string& name, int64_t begin, at::Tensor out) const {
  const int64_t end = begin + out.numel();
  const Manifest::Tensor& tensor = state_->tensor(name, begin, end);
  if (!out.is_cpu() || !out.is_contiguous() || out.scalar_type() != tensor.dtype) {
    out.copy_(read(name, begin, end));
    return;
  }
  for (const auto& slice : tensor.slices) {
    const int64_t from = std::max(begin, slice.begin), to = std::min(end, slice.end);
    if (from >= to) continue;
    auto* place = static_cast<std::byte*>(out.mutable_data_ptr()) + (from - begin) * static_cast<int64_t>(out.element_size());
    state_->files.at(slice.file).copy_elements(slice_key(name, tensor, slice), from - slice.begin, to - slice.begin, place);
  }
}

at::Tensor CheckpointReader::read(const std::string& name, int64_t begin, int64_t end) const {
  auto out = at::empty({end - begin}, state_->tensor(name, begin, end).dtype);
  read_into(name, begin, out);
  return out;
}

at::Tensor CheckpointReader::read(const std::string& name) const {
  const auto found = tensors().find(name);
  if (found == tensors().end()) fail_user("{}: no tensor is named {}", path(), quote(name));
  const auto& shape = found->second.shape;
  return read(name, 0, checked_numel(shape, found->second.dtype).value()).reshape(shape);
}

std::optional<std::string> verify_checkpoint(const std::string& path) {
  try {
    const CheckpointReader reader(path);
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace scatterlm

#include "lib/io/checkpoint.h"

#include <ATen/ATen.h>

#include <charconv>

#include "lib/io/json.h"
#include "lib/io/manifest.h"
#include "lib/io/safetensors.h"
#include "lib/util/error.h"
#include "lib/util/file.h"
#include "lib/util/log/log.h"

namespace scatterlm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_", kUnfinished = ".tmp_";

/// The step of a folder name that checkpoint_path gives.
std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || stop != end || step < 0) return std::nullopt;
  return fs::path(checkpoint_path("", step)).filename() == name ? std::optional(step) : std::nullopt;
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
  std::error_code error;  // no folder: no checkpoints
  for (const auto& entry : fs::directory_iterator(run_dir, error)) {
    if (const auto step = step_of(entry.path().filename().string()); step && entry.is_directory()) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::vector<std::string> find_checkpoints(const std::string& name) {
  const std::string path = name.substr(0, name.find_last_not_of('/') + 1);  // a shell completes a folder with a slash
  if (fs::exists(path + "/manifest.json")) return {path};
  std::vector<std::string> paths;
  for (const int64_t step : list_checkpoints(path)) paths.push_back(checkpoint_path(path, step));
  if (paths.empty())
    fail_user("{}: neither a checkpoint (a folder with manifest.json) nor a run that has one (step_...)", path);
  return paths;
}

void prune_checkpoints(const std::string& run_dir, int64_t keep_last, int64_t keep_every) {
  const auto steps = list_checkpoints(run_dir);
  for (int64_t i = 0; i + keep_last < static_cast<int64_t>(steps.size()); ++i) {
    if (keep_every > 0 && steps[i] % keep_every == 0) continue;
    remove_folder(checkpoint_path(run_dir, steps[i]));
  }
  std::vector<fs::path> unfinished;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_dir, error)) {
    if (entry.path().filename().string().starts_with(kUnfinished)) unfinished.push_back(entry.path());
  }
  for (const auto& path : unfinished) fs::remove_all(path, error);
}

struct CheckpointReader::State {
  std::string path;
  Manifest manifest;
  CheckpointContents contents;
  std::map<std::string, SafetensorsFile> files;
  std::map<std::string, Logical> tensors;

  explicit State(const std::string& folder) : path(folder), manifest(read_manifest(folder)) {
    std::map<std::string, std::string> texts;
    for (const auto& file : manifest.files) {
      const std::string file_path = path + "/" + file.name;
      check_file(path, file);
      if (file.name.ends_with(".safetensors")) {
        files.emplace(file.name, SafetensorsFile(file_path));
      } else {
        texts.emplace(file.name, read_file(file_path));
      }
    }
    for (const char* name : {"config.yaml", "state.json"}) {
      if (!texts.count(name)) fail_user("{}/manifest.json: {} is not listed", path, name);
    }
    contents = {manifest.step, texts["config.yaml"], parse_json(texts["state.json"], path + "/state.json")};
    for (const auto& [name, tensor] : manifest.tensors) {
      for (const auto& slice : tensor.slices) check_slice(name, tensor, slice);
      tensors.emplace(name, Logical{tensor.shape, tensor.dtype});
    }
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

CheckpointReader::CheckpointReader(const std::string& path) : state_(std::make_unique<State>(path)) {}
CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;

const std::string& CheckpointReader::path() const { return state_->path; }
const CheckpointContents& CheckpointReader::contents() const { return state_->contents; }
const std::map<std::string, CheckpointReader::Logical>& CheckpointReader::tensors() const { return state_->tensors; }

at::Tensor CheckpointReader::read(const std::string& name, int64_t begin, int64_t end) const {
  const auto found = state_->manifest.tensors.find(name);
  if (found == state_->manifest.tensors.end()) fail_user("{}: no tensor is named {}", path(), quote(name));
  const Manifest::Tensor& tensor = found->second;
  if (begin < 0 || end < begin || end > tensor.numel()) {
    fail("{}: tensor {} has {} elements, asked for {} to {}", path(), quote(name), tensor.numel(), begin, end);
  }
  at::Tensor out = at::empty({end - begin}, tensor.dtype);
  for (const auto& slice : tensor.slices) {
    const int64_t from = std::max(begin, slice.begin), to = std::min(end, slice.end);
    if (from >= to) continue;
    auto* place = static_cast<std::byte*>(out.mutable_data_ptr()) + (from - begin) * static_cast<int64_t>(out.element_size());
    state_->files.at(slice.file).copy_elements(slice_key(name, tensor, slice), from - slice.begin, to - slice.begin, place);
  }
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

std::optional<CheckpointReader> open_latest_checkpoint(const std::string& run_dir) {
  const auto steps = list_checkpoints(run_dir);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      return CheckpointReader(checkpoint_path(run_dir, *step));
    } catch (const Error& error) {
      log_warning(fmt::format("{}; going back to the checkpoint before it", error.what()));
    }
  }
  if (!steps.empty()) {
    fail_user("{}: none of its {} checkpoints can be read (see above); restore one, or start again in another --run-dir",
              run_dir, steps.size());
  }
  return std::nullopt;
}

}  // namespace scatterlm

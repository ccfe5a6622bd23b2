#include "lib/hf/weight_files.h"

#include <filesystem>

#include "lib/io/json.h"
#include "lib/util/error.h"
#include "lib/util/file.h"

namespace scatterlm::hf {
namespace {

constexpr uint64_t kMostIndexBytes = 64 << 20;  // a million tensors

}  // namespace

std::string read_small_file(const std::string& path, uint64_t most) {
  std::error_code error;
  if (path_exists(path) && !std::filesystem::is_regular_file(path, error)) fail_user("{}: not a regular file", path);
  const auto size = std::filesystem::file_size(path, error);
  if (!error && size > most) fail_user("{}: {} bytes, at most {} are expected", path, size, most);
  return read_file(path);
}

WeightFiles::WeightFiles(const std::string& folder) : folder_(folder) {
  const std::string single = folder + "/model.safetensors", index = folder + "/model.safetensors.index.json";
  if (path_exists(single)) {
    const auto& file = files_.emplace("model.safetensors", SafetensorsFile(single)).first->second;
    for (const auto& entry : file.entries()) tensors_.emplace(entry.first, &file);
  } else if (path_exists(index)) {
    open_shards(index);
  } else {
    fail_user("{}: holds neither model.safetensors nor model.safetensors.index.json; save the model as safetensors first",
              folder);
  }
}

void WeightFiles::open_shards(const std::string& index_path) {
  const auto index = parse_json(read_small_file(index_path, kMostIndexBytes), index_path);
  const auto map = index.is_object() ? index.value("weight_map", nlohmann::json()) : nlohmann::json();
  if (!map.is_object() || map.empty()) fail_user("{}: 'weight_map' is not an object with names of tensors", index_path);
  for (const auto& [name, file] : map.items()) {
    if (!file.is_string()) fail_user("{}: tensor {}: its file is no text", index_path, quote(name));
    const auto file_name = file.get<std::string>();
    const bool plain = !file_name.empty() && file_name[0] != '.' && file_name.find('/') == file_name.npos &&
                       file_name.find('\0') == file_name.npos && file_name.ends_with(".safetensors");
    if (!plain) fail_user("{}: {} is not the name of a .safetensors file in this folder", index_path, quote(file_name));
    const std::string path = folder_ + "/" + file_name;
    if (!files_.count(file_name)) {
      if (!path_exists(path)) fail_user("{}: is missing, model.safetensors.index.json needs it", path);
      files_.emplace(file_name, SafetensorsFile(path));
    }
    const auto& opened = files_.at(file_name);
    if (!opened.entries().count(name))
      fail_user("{}: has no tensor {}, of which the index says it is there", path, quote(name));
    tensors_.emplace(name, &opened);
  }
  for (const auto& [file_name, file] : files_) {
    for (const auto& entry : file.entries()) {
      const auto found = tensors_.find(entry.first);
      if (found == tensors_.end()) fail_user("{}/{}: tensor {} is not in the index", folder_, file_name, quote(entry.first));
      if (found->second != &file) fail_user("{}/{}: tensor {} is also in another file", folder_, file_name, quote(entry.first));
    }
  }
}

}  // namespace scatterlm::hf

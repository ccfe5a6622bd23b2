// The safetensors files of a Hugging Face model: model.safetensors, or model.safetensors.index.json and its shards.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "lib/io/safetensors.h"

namespace scatterlm::hf {

/// Throws Error if a file is larger than `most` bytes, or is no regular file.
std::string read_small_file(const std::string& path, uint64_t most);

class WeightFiles {
 public:
  /// Throws Error for a folder without such files, an index that names folders, a shard that is missing or has other tensors
  /// than the index says.
  explicit WeightFiles(const std::string& folder);

  const std::string& folder() const { return folder_; }
  /// Names of all tensors, each with its file.
  const std::map<std::string, const SafetensorsFile*>& tensors() const { return tensors_; }
  bool has(const std::string& name) const { return tensors_.count(name) > 0; }
  const SafetensorsFile::Entry& entry(const std::string& name) const { return tensors_.at(name)->entries().at(name); }

 private:
  void open_shards(const std::string& index_path);

  std::string folder_;
  std::map<std::string, SafetensorsFile> files_;
  std::map<std::string, const SafetensorsFile*> tensors_;
};

}  // namespace scatterlm::hf

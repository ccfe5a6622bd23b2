// safetensors files: https://github.com/huggingface/safetensors (format only).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace scatterlm {

/// Name and CPU tensor. Written sorted by dtype width (descending), then name; metadata always holds {"format": "pt"}.
/// The file is written beside, fsynced and renamed.
void write_safetensors(const std::string& path, const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// A mapped file whose header passed every check of the format (and refuses duplicate names and white space before the header).
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;

  struct Entry {
    at::ScalarType dtype;
    std::vector<int64_t> shape;
    uint64_t begin, end;  ///< bytes from the start of the data
  };
  const std::map<std::string, Entry>& entries() const;
  const std::map<std::string, std::string>& metadata() const;
  at::Tensor tensor(const std::string& name) const;  ///< a copy

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace scatterlm

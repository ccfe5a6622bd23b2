// safetensors files: https://github.com/huggingface/safetensors (format only).
//   u64 N | N bytes of JSON {"name": {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {...}} | data
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/util/file.h"

namespace scatterlm {

/// "BF16" for at::kBFloat16. Nothing: the format, or ATen, has no such type.
std::optional<std::string> safetensors_dtype(at::ScalarType dtype);
std::optional<at::ScalarType> parse_safetensors_dtype(std::string_view name);

/// Elements of a shape. Nothing: a negative size, or more bytes than an int64 counts.
std::optional<int64_t> checked_numel(const std::vector<int64_t>& shape, at::ScalarType dtype);

/// Name and tensor (any device; copied one at a time). Written sorted by dtype width (descending), then name; metadata
/// always holds {"format": "pt"}. Written under a temporary name, fsynced and renamed.
FileDigest write_safetensors(const std::string& path, const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                             const std::map<std::string, std::string>& metadata = {});

/// A tensor that is made while it is written: `write` passes its bytes, in order, to `out`.
struct StreamedTensor {
  using Sink = std::function<void(std::string_view)>;

  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  std::function<void(const Sink& out)> write;

  uint64_t bytes() const;
};

/// Bytes of all tensors together.
int64_t total_bytes(const std::vector<StreamedTensor>& tensors);

/// The same tensors; while they are written, `progress` is told the bytes of all of them so far.
std::vector<StreamedTensor> with_progress(std::vector<StreamedTensor> tensors, std::function<void(int64_t)> progress);

/// The same file, of tensors that need not be in memory.
FileDigest stream_safetensors(const std::string& path, const std::vector<StreamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

/// A mapped file whose header passed every check of the format (and refuses duplicate names and white space before the
/// header). Errors: "PATH: safetensors: WHAT IS WRONG".
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
  /// Copies elements begin..end-1 of a tensor to `out`, which has room for them.
  void copy_elements(const std::string& name, int64_t begin, int64_t end, void* out) const;
  /// The bytes of a tensor to `out`, piece by piece; what was passed on needs no memory.
  void stream(const std::string& name, const StreamedTensor::Sink& out) const;

 private:
  const Entry& entry(const std::string& name) const;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace scatterlm

#include "lib/hf/export.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "lib/io/json.h"
#include "lib/util/error.h"
#include "lib/util/file.h"

namespace scatterlm::hf {
namespace {

constexpr int64_t kPiece = 16 << 20;  // elements that are in memory at a time

/// Elements begin..end-1 of a tensor of the checkpoint, as export writes them.
struct Piece {
  const CheckpointReader* reader;
  std::string name;
  double scale;
  at::ScalarType dtype;
  int64_t begin, end;

  void write(const StreamedTensor::Sink& out) const {
    for (int64_t first = begin; first < end; first += kPiece) {
      auto values = reader->read(name, first, std::min(end, first + kPiece));
      if (scale != 1) values = values.to(at::kDouble) * scale;
      values = values.to(dtype).contiguous();
      out({static_cast<const char*>(values.const_data_ptr()), values.nbytes()});
    }
  }
};

StreamedTensor zeros(const std::string& name, const std::vector<int64_t>& shape, at::ScalarType dtype) {
  const auto write = [=](const StreamedTensor::Sink& out) {
    const auto values = at::zeros(shape, dtype);
    out({static_cast<const char*>(values.const_data_ptr()), values.nbytes()});
  };
  return {name, dtype, shape, write};
}

/// The tensor of the checkpoint; null for an output bias that it lacks.
const CheckpointReader::Logical* find_tensor(const CheckpointReader& reader, const ModelTensor& tensor) {
  const auto found = reader.tensors().find(tensor.name);
  if (found == reader.tensors().end()) {
    if (tensor.name.ends_with(".output_bias")) return nullptr;
    fail_user("{}: has no tensor '{}', which its model needs", reader.path(), tensor.name);
  }
  if (found->second.shape != tensor.shape)
    fail_user("{}: tensor '{}' has another shape than its model needs", reader.path(), tensor.name);
  return &found->second;
}

/// Files of at most `most` bytes each, in the order of the tensors.
std::vector<std::vector<StreamedTensor>> split(std::vector<StreamedTensor> tensors, uint64_t most) {
  std::vector<std::vector<StreamedTensor>> files(1);
  uint64_t bytes = 0;
  for (auto& tensor : tensors) {
    if (!files.back().empty() && bytes + tensor.bytes() > most) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += tensor.bytes();
    files.back().push_back(std::move(tensor));
  }
  return files;
}

}  // namespace

std::string dtype_name(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? "bfloat16" : dtype == at::kHalf ? "float16" : "float32";
}

std::vector<StreamedTensor> export_tensors(const CheckpointReader& reader, const std::vector<ModelTensor>& model,
                                           const Family& family, std::optional<at::ScalarType> dtype) {
  std::vector<StreamedTensor> tensors;
  at::ScalarType type = at::kFloat;
  for (const auto& tensor : model) {
    const auto* held = find_tensor(reader, tensor);
    type = dtype.value_or(held ? held->dtype : type);  // zeros are as what stands before them
    const auto parts = parts_of(tensor, family);
    if (parts.empty()) fail_user("{}: '{}' has no place in a {} model", reader.path(), tensor.name, family.model_type);
    int64_t begin = 0;
    for (const auto& part : parts) {
      const Piece piece{&reader, tensor.name, tensor.scale, type, begin, begin + part.numel()};
      begin = piece.end;
      tensors.push_back(held ? StreamedTensor{part.name, type, part.shape, [piece](const auto& out) { piece.write(out); }}
                             : zeros(part.name, part.shape, type));
    }
  }
  return tensors;
}

std::vector<StreamedTensor> plain_tensors(const CheckpointReader& reader, const std::vector<ModelTensor>& model,
                                          std::optional<at::ScalarType> dtype) {
  std::vector<StreamedTensor> tensors;
  for (const auto& tensor : model) {
    const auto* held = find_tensor(reader, tensor);
    if (!held) fail_user("{}: has no tensor '{}', which its model needs", reader.path(), tensor.name);
    const Piece piece{&reader, tensor.name, 1, dtype.value_or(held->dtype), 0, HfTensor{"", tensor.shape}.numel()};
    tensors.push_back({tensor.name, piece.dtype, tensor.shape, [piece](const auto& out) { piece.write(out); }});
  }
  return tensors;
}

std::vector<std::string> write_weight_files(const std::string& folder, std::vector<StreamedTensor> tensors,
                                            uint64_t shard_bytes) {
  const int64_t total = total_bytes(tensors);
  const auto files = split(std::move(tensors), shard_bytes);
  std::vector<std::string> names;
  nlohmann::ordered_json index{{"metadata", {{"total_size", total}}}, {"weight_map", nlohmann::ordered_json::object()}};
  for (size_t i = 0; i < files.size(); i++) {
    names.push_back(files.size() == 1 ? "model.safetensors"
                                      : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size()));
    stream_safetensors(folder + "/" + names.back(), files[i]);
    for (const auto& tensor : files[i]) index["weight_map"][tensor.name] = names.back();
  }
  if (files.size() > 1) {
    names.emplace_back("model.safetensors.index.json");
    write_file_atomic(folder + "/" + names.back(), index.dump(2) + "\n");
  }
  return names;
}

}  // namespace scatterlm::hf

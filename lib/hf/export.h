// From a checkpoint of ours to a Hugging Face model.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "lib/hf/config_json.h"
#include "lib/hf/tensor_map.h"
#include "lib/io/checkpoint.h"

namespace scatterlm::hf {

/// What export writes for one tensor of ours: all of `model`, and zeros where the checkpoint lacks an output bias that the
/// family always has. With a dtype, values are rounded to it; otherwise they keep that of the checkpoint. Throws Error that
/// names the first tensor of the model that the checkpoint lacks, or that the family has no place for. The reader outlives the
/// result.
std::vector<StreamedTensor> export_tensors(const CheckpointReader& reader, const std::vector<ModelTensor>& model,
                                           const Family& family, std::optional<at::ScalarType> dtype);

/// The same with our own names and shapes, for one plain file.
std::vector<StreamedTensor> plain_tensors(const CheckpointReader& reader, const std::vector<ModelTensor>& model,
                                          std::optional<at::ScalarType> dtype);

/// Writes model.safetensors, or shards of at most `shard_bytes` (a larger tensor has one of its own) and their index.
/// Returns the names of the files.
std::vector<std::string> write_weight_files(const std::string& folder, std::vector<StreamedTensor> tensors,
                                            uint64_t shard_bytes);

/// "float32", "bfloat16" or "float16", as config.json has it.
std::string dtype_name(at::ScalarType dtype);

}  // namespace scatterlm::hf

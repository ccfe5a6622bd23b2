// From a Hugging Face model to a checkpoint of ours, tensor by tensor.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "lib/hf/config_json.h"
#include "lib/hf/tensor_map.h"
#include "lib/hf/weight_files.h"

namespace scatterlm::hf {

/// The name under which the config.json of an imported model travels with its weights: beside config.yaml, which is ours.
inline constexpr const char* kImportedConfig = "imported_config.json";

/// A Hugging Face model whose configuration is read and whose tensors are all there, each with its place.
class Source {
 public:
  /// Throws Error for a folder that holds no such model.
  explicit Source(const std::string& folder);

  const ConfigJson& config_json() const { return config_; }
  const WeightFiles& weights() const { return weights_; }

  /// Parts of each of `model`, which is the model of config_json(). Throws Error that names the first tensor that is missing,
  /// has another shape or dtype than it should, or is left over.
  std::vector<std::vector<HfTensor>> match(const std::vector<ModelTensor>& model) const;

 private:
  void check_part(const ModelTensor& tensor, const HfTensor& part, at::ScalarType dtype) const;
  void check_left_over(const std::vector<std::string>& used) const;

  std::string folder_;
  ConfigJson config_;
  WeightFiles weights_;
};

/// The tensors of `model` as they are written, out of the files of `source`.
std::vector<StreamedTensor> import_tensors(const Source& source, const std::vector<ModelTensor>& model);

/// The files of a Hugging Face model that travel with its weights, by name: those of its tokenizer, the settings of generation,
/// and config.json as kImportedConfig. Throws Error if one cannot be read.
std::map<std::string, std::string> travelling_files(const std::string& folder);

}  // namespace scatterlm::hf

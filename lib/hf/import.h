// From a Hugging Face model to a checkpoint of ours, tensor by tensor.
#pragma once
#include <string>
#include <vector>

#include "lib/hf/config_json.h"
#include "lib/hf/tensor_map.h"
#include "lib/hf/weight_files.h"

namespace scatterlm::hf {

/// Files that travel with a model unchanged.
inline constexpr const char* kTravelling[] = {"tokenizer.json",    "tokenizer_config.json",   "vocab.json",
                                              "merges.txt",        "special_tokens_map.json", "generation_config.json",
                                              "added_tokens.json", "chat_template.jinja"};

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

/// Copies the files of kTravelling that are in `from` and not in `to`. Throws Error if one cannot be copied.
void copy_travelling(const std::string& from, const std::string& to);

}  // namespace scatterlm::hf

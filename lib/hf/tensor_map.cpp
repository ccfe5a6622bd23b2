#include "lib/hf/tensor_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace scatterlm::hf {
namespace {

constexpr std::string_view kExpert = "{e}";

/// Tensors outside layers have the same names in every family.
constexpr std::pair<std::string_view, const char*> kOutside[] = {{"embed_tokens.weight", "model.embed_tokens.weight"},
                                                                 {"norm.weight", "model.norm.weight"},
                                                                 {"lm_head.weight", "lm_head.weight"}};

std::string of_expert(std::string name, int64_t expert) {
  return name.replace(name.find(kExpert), kExpert.size(), std::to_string(expert));
}

std::vector<HfTensor> layer_parts(const ModelTensor& tensor, const TensorRule& rule, const std::string& prefix) {
  const bool stacked = std::string_view(rule.theirs.front()).find(kExpert) != std::string_view::npos;
  if (!stacked && rule.theirs.size() == 1) return {{prefix + rule.theirs.front(), tensor.shape}};
  if (rule.theirs.size() != tensor.matrix_rows.size()) return {};
  const std::vector<int64_t> inner(tensor.shape.begin() + (stacked ? 2 : 1), tensor.shape.end());
  const int64_t copies = stacked ? tensor.shape[0] : 1;
  std::vector<HfTensor> parts;
  for (int64_t copy = 0; copy < copies; copy++) {
    for (size_t i = 0; i < rule.theirs.size(); i++) {
      HfTensor part{prefix + (stacked ? of_expert(rule.theirs[i], copy) : rule.theirs[i]), {tensor.matrix_rows[i]}};
      part.shape.insert(part.shape.end(), inner.begin(), inner.end());
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

}  // namespace

int64_t HfTensor::numel() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

std::vector<HfTensor> parts_of(const ModelTensor& tensor, const Family& family) {
  for (const auto& [ours, theirs] : kOutside) {
    if (tensor.name == ours) return {{theirs, tensor.shape}};
  }
  constexpr std::string_view kLayers = "layers.";
  if (!tensor.name.starts_with(kLayers)) return {};
  const size_t dot = std::min(tensor.name.find('.', kLayers.size()), tensor.name.size() - 1);
  const std::string_view suffix = std::string_view(tensor.name).substr(dot + 1);
  const auto rule = std::ranges::find_if(family.tensors, [&](const TensorRule& r) { return suffix == r.ours; });
  if (rule == family.tensors.end()) return {};
  return layer_parts(tensor, *rule, "model." + tensor.name.substr(0, dot + 1));
}

}  // namespace scatterlm::hf

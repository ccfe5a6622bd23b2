#include "lib/train/model_tensors.h"

#include <ATen/ATen.h>

#include <map>

#include "lib/nn/model.h"

namespace scatterlm {
namespace {

constexpr std::string_view kBias = ".bias", kWeight = ".weight";

}  // namespace

std::vector<hf::ModelTensor> model_tensors(const ModelConfig& config) {
  const nn::Model model(config, at::device(at::kMeta).dtype(at::kFloat));
  std::map<std::string, double> factors;  // of the tensors after which the gates are applied
  for (const auto* router : model.routers()) {
    const std::string layer = router->name.substr(0, router->name.rfind('.'));
    for (const char* tensor : {".experts.down_proj", ".experts.down_proj_bias", ".experts.o_proj"})
      factors[layer + tensor] = router->options.routed_scaling_factor;
  }
  std::vector<hf::ModelTensor> tensors;
  std::map<std::string, std::vector<int64_t>> rows;
  for (const auto& unit : model.units()) {
    for (const auto& p : unit->params()) {
      const auto factor = factors.find(p.name);
      tensors.push_back({p.name, p.shape, p.matrix_rows, factor == factors.end() ? 1 : factor->second});
      rows[p.name] = p.matrix_rows;
    }
  }
  for (auto& tensor : tensors) {
    if (!tensor.name.ends_with(kBias)) continue;
    const auto weight = rows.find(tensor.name.substr(0, tensor.name.size() - kBias.size()) + std::string(kWeight));
    if (weight != rows.end()) tensor.matrix_rows = weight->second;
  }
  return tensors;
}

}  // namespace scatterlm

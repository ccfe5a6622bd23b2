#include "lib/train/upcycle.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <regex>

#include "lib/config/load.h"
#include "lib/config/value_text.h"
#include "lib/ops/normal.h"
#include "lib/train/model_tensors.h"
#include "lib/util/error.h"

namespace scatterlm {
namespace {

/// A tensor of experts and the tensor of the dense MLP that each of them has.
constexpr std::pair<std::string_view, std::string_view> kCopies[] = {{".experts.up_proj", ".up_proj.weight"},
                                                                     {".experts.down_proj", ".down_proj.weight"},
                                                                     {".experts.up_proj_bias", ".up_proj.bias"},
                                                                     {".experts.down_proj_bias", ".down_proj.bias"}};

/// Name of the dense tensor that `name` repeats; empty if it is none of experts.
std::string repeated(const std::string& name) {
  for (const auto& [experts, dense] : kCopies) {
    if (name.ends_with(experts)) return name.substr(0, name.size() - experts.size()) + std::string(dense);
  }
  return "";
}

StreamedTensor new_router(const hf::ModelTensor& tensor, at::ScalarType dtype, const Config& config) {
  const auto write = [=, seed = config.train.seed, std = config.model.initializer_range](const StreamedTensor::Sink& out) {
    const auto values = at::empty({hf::HfTensor{"", tensor.shape}.numel()}, at::kFloat);
    ops::fill_normal(values, ops::stream_of(static_cast<uint64_t>(seed), tensor.name), 0, static_cast<float>(std));
    const auto rounded = values.to(dtype);
    out({static_cast<const char*>(rounded.const_data_ptr()), rounded.nbytes()});
  };
  return {tensor.name, dtype, tensor.shape, write};
}

}  // namespace

Upcycling parse_upcycling(const std::string& text) {
  std::smatch found;
  if (text.size() > 40 || !std::regex_match(text, found, std::regex("experts=([0-9]{1,4}),top_k=([0-9]{1,4})")))
    fail_user("--upcycle {}: must be experts=E,top_k=K, for example experts=8,top_k=2", one_line(text));
  return {std::stoll(found[1]), std::stoll(found[2])};
}

Config upcycled_config(const Config& dense, const Upcycling& upcycling, const std::string& where) {
  Config config = dense;
  ModelConfig& model = config.model;
  const auto kinds = model.layer_kinds();
  if (std::ranges::any_of(kinds, [](LayerKind kind) { return kind.mlp == MlpKind::kMoe; }))
    fail_user("{}: --upcycle needs a dense model, this one has experts", where);
  for (size_t at = 0; (at = model.layers.find("+dense", at)) != std::string::npos;) model.layers.replace(at, 6, "+moe");
  model.moe = {.num_experts = upcycling.experts,
               .num_experts_per_tok = upcycling.top_k,
               .moe_intermediate_size = model.dense.intermediate_size,
               .activation = model.dense.activation,
               .bias = model.dense.bias};
  model.router.norm_topk_prob = true;
  model.router.routed_scaling_factor = 1;
  return parse_config(dump_config(config), where + ", upcycled");
}

std::vector<StreamedTensor> upcycled_tensors(const std::vector<StreamedTensor>& dense, const Config& sparse) {
  std::map<std::string, const StreamedTensor*> by_name;
  for (const auto& tensor : dense) by_name[tensor.name] = &tensor;
  std::vector<StreamedTensor> tensors;
  for (const auto& tensor : model_tensors(sparse.model)) {
    const auto same = by_name.find(tensor.name), copied = by_name.find(repeated(tensor.name));
    if (same != by_name.end()) {
      tensors.push_back(*same->second);
    } else if (copied != by_name.end()) {
      const auto write = [times = tensor.shape[0], one = copied->second->write](const StreamedTensor::Sink& out) {
        for (int64_t i = 0; i < times; i++) one(out);
      };
      tensors.push_back({tensor.name, copied->second->dtype, tensor.shape, write});
    } else {
      tensors.push_back(new_router(tensor, dense.front().dtype, sparse));
    }
  }
  return tensors;
}

}  // namespace scatterlm

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

/// Units begin .. begin + width - 1 of a dense MLP of `all` units.
struct Part {
  int64_t begin, width, all;
};

/// [2F, D] or [F, D], or a bias of as many rows: rows of the gate and of up, one below the other, are cut alike.
at::Tensor part_of_up(const at::Tensor& dense, const Part& part) {
  return dense.unflatten(0, {-1, part.all}).narrow(1, part.begin, part.width);
}
/// [D, F]
at::Tensor part_of_down(const at::Tensor& dense, const Part& part) { return dense.narrow(1, part.begin, part.width); }
/// [D], which all parts together add once.
at::Tensor part_of_down_bias(const at::Tensor& dense, const Part& part) { return dense / (part.all / part.width); }

/// A tensor of experts, the tensor of the dense MLP that it is made of, and the part that one expert has.
struct Cut {
  std::string_view experts, dense;
  at::Tensor (*part)(const at::Tensor& dense, const Part& part);
};
constexpr Cut kCuts[] = {{".experts.up_proj", ".up_proj.weight", part_of_up},
                         {".experts.down_proj", ".down_proj.weight", part_of_down},
                         {".experts.up_proj_bias", ".up_proj.bias", part_of_up},
                         {".experts.down_proj_bias", ".down_proj.bias", part_of_down_bias}};

void write_tensor(const at::Tensor& values, const StreamedTensor::Sink& out) {
  const auto bytes = values.contiguous();
  out({static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()});
}

at::Tensor read_tensor(const StreamedTensor& tensor) {
  auto values = at::empty(tensor.shape, tensor.dtype);
  auto* next = static_cast<char*>(values.mutable_data_ptr());
  tensor.write([&](std::string_view bytes) { next = std::ranges::copy(bytes, next).out; });
  return values;
}

/// Groups of experts one after the other, each with all parts of the dense tensor in order.
StreamedTensor cut_into_experts(const hf::ModelTensor& tensor, const StreamedTensor& dense, const Cut& cut, int64_t width,
                                int64_t split) {
  const auto write = [=](const StreamedTensor::Sink& out) {
    const auto values = read_tensor(dense);
    for (int64_t expert = 0; expert < tensor.shape[0]; expert++)
      write_tensor(cut.part(values, {expert % split * width, width, split * width}), out);
  };
  return {tensor.name, dense.dtype, tensor.shape, write};
}

/// One row of N(0, initializer_range) for each group of `split` experts.
StreamedTensor new_router(const hf::ModelTensor& tensor, at::ScalarType dtype, const Config& config, int64_t split) {
  const auto write = [=, seed = config.train.seed, std = config.model.initializer_range](const StreamedTensor::Sink& out) {
    const auto rows = at::empty({tensor.shape[0] / split, tensor.shape[1]}, at::kFloat);
    ops::fill_normal(rows.view(-1), ops::stream_of(static_cast<uint64_t>(seed), tensor.name), 0, static_cast<float>(std));
    write_tensor(rows.repeat_interleave(split, 0).to(dtype), out);
  };
  return {tensor.name, dtype, tensor.shape, write};
}

}  // namespace

Upcycling parse_upcycling(const std::string& text) {
  std::smatch found;
  const std::regex form("experts=([0-9]{1,4}),top_k=([0-9]{1,4})(,split=([1-9][0-9]{0,3}))?");
  if (text.size() > 40 || !std::regex_match(text, found, form)) {
    fail_user("--upcycle {}: must be experts=E,top_k=K or experts=E,top_k=K,split=G, for example experts=8,top_k=2",
              one_line(text));
  }
  const Upcycling upcycling{std::stoll(found[1]), std::stoll(found[2]), found[4].matched ? std::stoll(found[4]) : 1};
  const int64_t split = upcycling.split;
  if (upcycling.experts % split != 0 || upcycling.top_k % split != 0)
    fail_user("--upcycle {}: experts and top_k must be multiples of split: a token takes whole groups of {} experts", text,
              split);
  return upcycling;
}

Config upcycled_config(const Config& dense, const Upcycling& upcycling, const std::string& where) {
  Config config = dense;
  ModelConfig& model = config.model;
  const auto kinds = model.layer_kinds();
  if (std::ranges::any_of(kinds, [](LayerKind kind) { return kind.mlp == MlpKind::kMoe; }))
    fail_user("{}: --upcycle needs a dense model, this one has experts", where);
  const int64_t width = model.dense.intermediate_size, split = upcycling.split;
  if (width % split != 0)
    fail_user("{}: --upcycle: split={} does not divide the width of the MLP, 'intermediate_size': {}", where, split, width);
  for (size_t at = 0; (at = model.layers.find("+dense", at)) != std::string::npos;) model.layers.replace(at, 6, "+moe");
  model.moe = {.num_experts = upcycling.experts,
               .num_experts_per_tok = upcycling.top_k,
               .moe_intermediate_size = width / split,
               .activation = model.dense.activation,
               .bias = model.dense.bias};
  model.router.norm_topk_prob = true;
  model.router.routed_scaling_factor = static_cast<double>(split);
  return parse_config(dump_config(config), where + ", upcycled");
}

std::vector<StreamedTensor> upcycled_tensors(const std::vector<StreamedTensor>& dense, const Config& sparse, int64_t split) {
  std::map<std::string, const StreamedTensor*> by_name;
  for (const auto& tensor : dense) by_name[tensor.name] = &tensor;
  std::vector<StreamedTensor> tensors;
  for (const auto& tensor : model_tensors(sparse.model)) {
    const auto cut = std::ranges::find_if(kCuts, [&](const Cut& other) { return tensor.name.ends_with(other.experts); });
    if (const auto same = by_name.find(tensor.name); same != by_name.end()) {
      tensors.push_back(*same->second);
    } else if (cut != std::end(kCuts)) {
      const auto name = tensor.name.substr(0, tensor.name.size() - cut->experts.size()) + std::string(cut->dense);
      tensors.push_back(cut_into_experts(tensor, *by_name.at(name), *cut, sparse.model.moe.moe_intermediate_size, split));
    } else {
      tensors.push_back(new_router(tensor, dense.front().dtype, sparse, split));
    }
  }
  return tensors;
}

}  // namespace scatterlm

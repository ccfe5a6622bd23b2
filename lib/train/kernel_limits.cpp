#include "lib/train/kernel_limits.h"

#include <algorithm>

#include "kernels/router_scores.h"
#include "kernels/routing.h"
#include "lib/util/error.h"
#include "lib/util/gpu.h"
#include "lib/util/log/log.h"

namespace scatterlm {
namespace {

/// A key of the model and its value.
struct Size {
  const char* key;
  int64_t value;
};

struct ExpertLayers {
  Size experts;
  std::vector<Size> widths;  ///< of rows that the kernels of experts load and store
};

/// The kinds of layers with experts that the model has.
std::vector<ExpertLayers> expert_layers(const ModelConfig& model) {
  const auto kinds = model.layer_kinds();
  std::vector<ExpertLayers> layers;
  if (std::ranges::any_of(kinds, [](LayerKind kind) { return kind.mlp == MlpKind::kMoe; })) {
    layers.push_back({.experts = {"model.moe.num_experts", model.moe.num_experts},
                      .widths = {{"model.moe.moe_intermediate_size", model.moe.moe_intermediate_size}}});
  }
  if (std::ranges::any_of(kinds, [](LayerKind kind) { return kind.attention == AttentionKind::kMoa; })) {
    layers.push_back(
        {.experts = {"model.moa.num_experts", model.moa.num_experts},
         .widths = {{"model.moa.num_key_value_heads * head_dim", model.moa.num_key_value_heads * model.moa.head_dim}}});
  }
  for (auto& layer : layers) layer.widths.push_back({"model.hidden_size", model.hidden_size});
  return layers;
}

}  // namespace

void require_routable(const ModelConfig& model, int64_t shared_bytes) {
  const int64_t most = kernels::max_routing_experts(shared_bytes);
  for (const auto& layer : expert_layers(model)) {
    if (layer.experts.value > most)
      fail_user("'{}: {}' must be at most {} on this GPU: more do not fit its {} KiB of shared memory", layer.experts.key,
                layer.experts.value, most, shared_bytes >> 10);
  }
}

std::vector<std::string> parts_without_kernel(const ModelConfig& model, at::ScalarType dtype) {
  std::vector<std::string> parts;
  const auto add = [&](std::string text) {
    if (std::ranges::find(parts, text) == parts.end()) parts.push_back(std::move(text));
  };
  const auto layers = expert_layers(model);
  if (!layers.empty() && dtype != at::kBFloat16)
    add("experts have no kernels in float32, and the host waits for the GPU in every layer: train.dtype: bfloat16 has them");
  for (const auto& layer : layers) {
    for (const auto& width : layer.widths) {
      if (dtype == at::kBFloat16 && width.value % 8 != 0)
        add(fmt::format(
            "experts have no kernels for '{}: {}', and the host waits for the GPU in every layer: a multiple of 8 has "
            "them",
            width.key, width.value));
    }
    if (layer.experts.value > kernels::kMaxRouterExperts)
      add(fmt::format("routers have no kernel for '{}: {}': up to {} experts have one", layer.experts.key, layer.experts.value,
                      kernels::kMaxRouterExperts));
  }
  return parts;
}

void check_kernel_limits(const ModelConfig& model, const ExecutionSetup& setup) {
  if (!setup.device.is_cuda()) return;
  require_routable(model, gpus().at(static_cast<size_t>(setup.device.index())).shared_bytes);
  for (const auto& part : parts_without_kernel(model, setup.dtype)) log_warning(part);
}

}  // namespace scatterlm

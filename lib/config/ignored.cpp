#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>

#include "lib/config/check.h"
#include "lib/config/layers.h"

namespace scatterlm {
namespace {

/// Keys and groups of `model` that some kinds of layers name, each with the names of those kinds.
std::map<std::string_view, std::vector<std::string_view>> kinds_of_keys() {
  std::map<std::string_view, std::vector<std::string_view>> kinds;
  for (const auto list : {std::span<const LayerKindKeys>(kAttentionKinds), std::span<const LayerKindKeys>(kMlpKinds)}) {
    for (const auto& [name, keys] : list) {
      for (const auto key : keys)
        if (!key.empty()) kinds[key].push_back(name);
    }
  }
  return kinds;
}

}  // namespace

std::vector<Ignored> ignored_keys(const Config& config) {
  std::vector<Ignored> ignored;
  const auto unless = [&](bool used, const std::string& path, const char* cause, std::string reason) {
    if (!used) ignored.push_back({path, cause, std::move(reason)});
  };
  const std::vector<LayerKind> layers = parse_layers(config.model.layers);
  const auto kinds_of = kinds_of_keys();
  const auto unless_layers_read = [&](std::string_view key, const std::string& path) {
    const auto& kinds = kinds_of.at(key);
    const auto reads = [&](LayerKind layer) {
      return std::ranges::count(kinds, kAttentionKinds[static_cast<int>(layer.attention)].name) +
             std::ranges::count(kinds, kMlpKinds[static_cast<int>(layer.mlp)].name);
    };
    unless(std::ranges::any_of(layers, reads), path, "model.layers",
           fmt::format("no {} layer in model.layers: {}", fmt::join(kinds, " or "), one_line(config.model.layers)));
  };
  for (const auto& entry : kinds_of) unless_layers_read(entry.first, fmt::format("model.{}", entry.first));
  unless_layers_read("router", "optim.router_lr_scale");

  const RouterConfig& router = config.model.router;
  const std::string balance = std::string("model.router.balance is ") + enum_name(router.balance);
  unless(router.balance == Balance::kAux, "model.router.aux_loss_coef", "model.router.balance", balance);
  unless(router.balance == Balance::kBias, "model.router.bias_update_rate", "model.router.balance", balance);

  unless(config.model.moe.shared_intermediate_size > 0, "model.moe.shared_gate", "model.moe.shared_intermediate_size",
         "model.moe.shared_intermediate_size is 0");

  const RopeScaling scaling = config.model.rope_scaling.type;
  const std::string rope = std::string("model.rope_scaling.type is ") + enum_name(scaling);
  const auto unless_rope = [&](bool used, const char* key) {
    unless(used, std::string("model.rope_scaling.") + key, "model.rope_scaling.type", rope);
  };
  const bool llama3 = scaling == RopeScaling::kLlama3, yarn = scaling == RopeScaling::kYarn;
  unless_rope(scaling != RopeScaling::kNone, "factor");
  unless_rope(llama3 || yarn, "original_max_position_embeddings");
  for (const char* key : {"low_freq_factor", "high_freq_factor"}) unless_rope(llama3, key);
  for (const char* key : {"beta_fast", "beta_slow", "attention_factor"}) unless_rope(yarn, key);

  const bool validates = !config.data.validation.empty();
  unless(validates || !config.train.eval_tasks.empty(), "train.eval_interval", "data.validation",
         "neither data.validation nor train.eval_tasks is set");
  unless(validates, "train.eval_tokens", "data.validation", "data.validation is not set");

  const OptimConfig& optim = config.optim;
  const std::string schedule = std::string("optim.schedule is ") + enum_name(optim.schedule);
  unless(optim.schedule == Schedule::kWsd, "optim.decay_steps", "optim.schedule", schedule);
  unless(optim.schedule != Schedule::kConstant, "optim.min_lr_ratio", "optim.schedule", schedule);
  const std::string optimizer = std::string("optim.name is ") + enum_name(optim.name);
  unless(optim.name == OptimizerName::kMuon, "optim.momentum", "optim.name", optimizer);
  unless(optim.name == OptimizerName::kMuon, "optim.newton_schulz_steps", "optim.name", optimizer);
  unless(optim.weight_decay > 0, "optim.decay_embeddings", "optim.weight_decay", "optim.weight_decay is 0");
  return ignored;
}

}  // namespace scatterlm

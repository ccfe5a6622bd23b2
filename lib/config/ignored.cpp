#include <fmt/ranges.h>

#include <algorithm>

#include "lib/config/check.h"
#include "lib/config/layers.h"

namespace scatterlm {
namespace {

/// Keys and groups of keys that only some kinds of layers read.
struct KeyOfKinds {
  const char* key;
  std::vector<std::string> kinds;  ///< as `model.layers` spells them
};

const std::vector<KeyOfKinds>& keys_of_kinds() {
  static const std::vector<KeyOfKinds> keys = {
      {"model.attention", {"gqa", "swa"}},
      {"model.attention.window", {"swa"}},
      {"model.moa", {"moa"}},
      {"model.dense", {"dense"}},
      {"model.moe", {"moe"}},
      {"model.router", {"moa", "moe"}},
      {"model.router.rounding", {"moe"}},
  };
  return keys;
}

template <class Kind>
bool contains(const std::vector<std::string>& kinds, Kind kind) {
  return std::find(kinds.begin(), kinds.end(), enum_name(kind)) != kinds.end();
}

}  // namespace

std::vector<Ignored> ignored_keys(const Config& config) {
  std::vector<Ignored> ignored;
  const auto unless = [&](bool used, const char* path, const char* cause, std::string reason) {
    if (!used) ignored.push_back({path, cause, std::move(reason)});
  };
  const std::vector<LayerKind> layers = parse_layers(config.model.layers);
  for (const auto& [key, kinds] : keys_of_kinds()) {
    const auto reads = [&](LayerKind layer) { return contains(kinds, layer.attention) || contains(kinds, layer.mlp); };
    unless(std::any_of(layers.begin(), layers.end(), reads), key, "model.layers",
           fmt::format("no {} layer in model.layers: {}", fmt::join(kinds, " or "), one_line(config.model.layers)));
  }

  const RouterConfig& router = config.model.router;
  const std::string balance = std::string("model.router.balance is ") + enum_name(router.balance);
  unless(router.balance == Balance::kAux, "model.router.aux_loss_coef", "model.router.balance", balance);
  unless(router.balance == Balance::kBias, "model.router.bias_update_rate", "model.router.balance", balance);

  const bool evaluates = !config.data.validation.empty();
  unless(evaluates, "train.eval_interval", "data.validation", "data.validation is not set");
  unless(evaluates, "train.eval_tokens", "data.validation", "data.validation is not set");

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

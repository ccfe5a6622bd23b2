#include <algorithm>

#include "lib/config/check.h"
#include "lib/config/layers.h"

namespace scatterlm {

std::vector<Ignored> ignored_keys(const Config& config) {
  std::vector<Ignored> ignored;
  const auto unless = [&](bool used, const char* path, const char* cause, std::string reason) {
    if (!used) ignored.push_back({path, cause, std::move(reason)});
  };
  const std::vector<LayerKind> layers = parse_layers(config.model.layers);
  const auto some_layer = [&](auto matches) { return std::any_of(layers.begin(), layers.end(), matches); };
  const bool has_gqa = some_layer([](LayerKind layer) { return layer.attention == AttentionKind::kGqa; });
  const bool has_moa = some_layer([](LayerKind layer) { return layer.attention == AttentionKind::kMoa; });
  const bool has_dense = some_layer([](LayerKind layer) { return layer.mlp == MlpKind::kDense; });
  const bool has_moe = some_layer([](LayerKind layer) { return layer.mlp == MlpKind::kMoe; });
  const std::string pattern = "in model.layers: " + one_line(config.model.layers);
  unless(has_gqa, "model.attention", "model.layers", "no gqa layer " + pattern);
  unless(has_moa, "model.moa", "model.layers", "no moa layer " + pattern);
  unless(has_dense, "model.dense", "model.layers", "no dense layer " + pattern);
  unless(has_moe, "model.moe", "model.layers", "no moe layer " + pattern);
  unless(has_moa || has_moe, "model.router", "model.layers", "no moa or moe layer " + pattern);

  const RouterConfig& router = config.model.router;
  const std::string balance = std::string("model.router.balance is ") + enum_name(router.balance);
  unless(router.balance == Balance::kAux, "model.router.aux_loss_coef", "model.router.balance", balance);
  unless(router.balance == Balance::kBias, "model.router.bias_update_rate", "model.router.balance", balance);
  unless(has_moe, "model.router.rounding", "model.layers", "no moe layer " + pattern);

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

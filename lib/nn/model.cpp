#include "lib/nn/model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "lib/nn/layer_kinds.h"
#include "lib/nn/recompute.h"
#include "lib/ops/cross_entropy.h"
#include "lib/ops/linear.h"
#include "lib/ops/rms_norm.h"

namespace scatterlm::nn {
namespace {

/// x * factor; a factor of 1 costs nothing.
at::Tensor scaled(const at::Tensor& x, double factor) { return factor == 1 ? x : x * factor; }

}  // namespace

Model::Model(const ModelConfig& config, at::TensorOptions options, Decay embedding_decay) : config_(config), options_(options) {
  const auto embedding_init = Init::normal(config.initializer_range);
  embedding_ = add_unit("embed_tokens")
                   .param("embed_tokens.weight", {config.vocab_size, config.hidden_size}, embedding_init, embedding_decay);
  RopeTables rope(config.rope_scaling, options.device());
  for (const LayerKind kind : config.layer_kinds()) layers_.push_back(make_layer(std::ssize(layers_), kind, rope));
  auto& head_unit = add_unit("head");
  norm_weight_ = head_unit.param("norm.weight", {config.hidden_size}, Init::ones(), Decay::kNo);
  head_ = config.tie_word_embeddings
              ? embedding_
              : head_unit.param("lm_head.weight", {config.vocab_size, config.hidden_size}, embedding_init, Decay::kYes);
  for (const auto& layer : layers_) {
    for (SubLayer* sub_layer : {layer.attention.get(), layer.mlp.get()})
      if (Router* router = sub_layer->router()) routers_.push_back(router);
  }
}

ParameterUnit& Model::add_unit(const std::string& name) {
  return *units_.emplace_back(std::make_unique<ParameterUnit>(name, options_));
}

DecoderLayer Model::make_layer(int64_t index, LayerKind kind, RopeTables& rope) {
  const auto name = fmt::format("layers.{}", index);
  const InitScale init{config_.initializer_range,
                       config_.initializer_range / std::sqrt(2.0 * static_cast<double>(config_.num_hidden_layers))};
  auto& unit = add_unit(name);
  const auto norm = [&](const char* norm_name) {
    return unit.param(name + norm_name, {config_.hidden_size}, Init::ones(), Decay::kNo);
  };
  const auto sub_layer = [&](const SubLayerKind& sub_layer_kind, const char* sub_layer_name) {
    return sub_layer_kind.make({config_, name + sub_layer_name, init, unit, rope, options_.device()});
  };
  return {.input_norm_weight = norm(".input_layernorm.weight"),
          .attention = sub_layer(sub_layer_kind(kind.attention), ".attention"),
          .post_attention_norm_weight = norm(".post_attention_layernorm.weight"),
          .mlp = sub_layer(sub_layer_kind(kind.mlp), ".mlp"),
          .eps = config_.rms_norm_eps,
          .residual_multiplier = config_.residual_multiplier};
}

at::Tensor Model::forward(const at::Tensor& tokens_BS, Context& context) {
  if (context.document_BS) context.documents.emplace(*context.document_BS, device());
  units_.front()->wait_params();
  ResidualStream stream{scaled(at::embedding(embedding_, tokens_BS), config_.embedding_multiplier), std::nullopt};
  for (size_t i = 0; i < layers_.size(); i++) {
    const auto& layer = layers_[i];
    units_[i + 1]->wait_params();
    context.layer = static_cast<int64_t>(i);
    if (context.recompute == Recompute::kLayer) {
      stream = forward_keeping_input(layer, std::move(stream), context);
      continue;
    }
    const auto normed = layer.input_norm(stream);
    stream = {};  // nothing reads it any more
    stream = layer.forward(normed, context);
  }
  units_.back()->wait_params();
  // The head is linear: what divides the logits may divide its input, which is smaller.
  const auto normed = ops::add_rms_norm(stream.x, stream.branch, norm_weight_, config_.rms_norm_eps);
  return scaled(normed.y, 1 / config_.logits_scaling);
}

at::Tensor Model::cross_entropy_sum(const Batch& batch, Context& context) {
  context.document_BS = batch.document_BS;
  const auto hidden = forward(batch.input_BS, context);
  return ops::linear_cross_entropy(hidden.flatten(0, 1), head_, batch.target_BS.flatten());
}

at::Tensor Model::logits(const at::Tensor& hidden_ND) const { return ops::linear(hidden_ND, head_).to(at::kFloat); }

int64_t Model::num_parameters() const {
  int64_t count = 0;
  for (const auto& unit : units_) {
    for (const auto& p : unit->params()) count += p.numel;
  }
  return count;
}

}  // namespace scatterlm::nn

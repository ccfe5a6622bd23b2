#include "lib/nn/model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "lib/ops/attention.h"
#include "lib/ops/cross_entropy.h"
#include "lib/ops/linear.h"
#include "lib/ops/rms_norm.h"

namespace scatterlm::nn {

Model::Model(const ModelConfig& config, at::TensorOptions options, Comm& comm, Decay embedding_decay)
    : config_(config),
      options_(options),
      gqa_rope_(std::make_shared<RopeTable>(config.attention.head_dim, config.attention.rope_theta, options.device())),
      moa_rope_(std::make_shared<RopeTable>(config.moa.head_dim, config.moa.rope_theta, options.device())) {
  const auto embedding_init = Init::normal(config.initializer_range);
  embedding_ = add_unit("embed_tokens")
                   .param("embed_tokens.weight", {config.vocab_size, config.hidden_size}, embedding_init, embedding_decay);
  const auto kinds = config.layer_kinds();
  for (size_t i = 0; i < kinds.size(); i++) layers_.push_back(make_layer(static_cast<int64_t>(i), kinds[i]));
  auto& head_unit = add_unit("head");
  norm_weight_ = head_unit.param("norm.weight", {config.hidden_size}, Init::ones(), Decay::kNo);
  head_ = config.tie_word_embeddings
              ? embedding_
              : head_unit.param("lm_head.weight", {config.vocab_size, config.hidden_size}, embedding_init, Decay::kYes);
  for (auto& layer : layers_) {
    if (auto* moa = std::get_if<MoaAttention>(&layer->attention)) routers_.push_back(&moa->router);
    if (auto* moe = std::get_if<MoeMlp>(&layer->mlp)) routers_.push_back(&moe->router);
  }
  for (auto& unit : units_) unit->allocate(comm);
}

ParameterUnit& Model::add_unit(const std::string& name) {
  return *units_.emplace_back(std::make_unique<ParameterUnit>(name, options_));
}

std::unique_ptr<DecoderLayer> Model::make_layer(int64_t index, LayerKind kind) {
  const auto name = fmt::format("layers.{}", index);
  const int64_t hidden = config_.hidden_size;
  const double eps = config_.rms_norm_eps;
  const InitScale init{config_.initializer_range,
                       config_.initializer_range / std::sqrt(2.0 * static_cast<double>(config_.num_hidden_layers))};
  auto& unit = add_unit(name);
  const auto device = options_.device();

  auto input_norm = unit.param(name + ".input_layernorm.weight", {hidden}, Init::ones(), Decay::kNo);
  auto attention = [&]() -> std::variant<GqaAttention, MoaAttention> {
    if (kind.attention == AttentionKind::kMoa) {
      return MoaAttention(config_.moa, config_.router, name + ".attention", hidden, eps, init, unit, moa_rope_, device);
    }
    const int64_t window = kind.attention == AttentionKind::kSwa ? config_.attention.window : 0;
    return GqaAttention(config_.attention, name + ".attention", hidden, eps, init, unit, gqa_rope_, window);
  }();
  auto post_norm = unit.param(name + ".post_attention_layernorm.weight", {hidden}, Init::ones(), Decay::kNo);
  auto mlp = [&]() -> std::variant<DenseMlp, MoeMlp> {
    if (kind.mlp == MlpKind::kMoe) return MoeMlp(config_.moe, config_.router, name + ".mlp", hidden, init, unit, device);
    return DenseMlp(config_.dense.activation, config_.dense.intermediate_size, name + ".mlp", hidden, init, unit);
  }();
  return std::make_unique<DecoderLayer>(
      DecoderLayer{std::move(input_norm), std::move(attention), std::move(post_norm), std::move(mlp)});
}

at::Tensor Model::forward(const at::Tensor& tokens_BS, Context& context) {
  if (context.document_BS) context.mask = ops::document_mask(*context.document_BS, tokens_BS.size(1));
  units_.front()->wait_params();
  auto x = at::embedding(embedding_, tokens_BS);
  for (size_t i = 0; i < layers_.size(); i++) {
    auto& layer = *layers_[i];
    units_[i + 1]->wait_params();
    context.layer = static_cast<int64_t>(i);
    const auto attention_in = ops::rms_norm(x, layer.input_norm_weight, config_.rms_norm_eps);
    x = x + std::visit([&](auto& attention) { return attention.forward(attention_in, context); }, layer.attention);
    const auto mlp_in = ops::rms_norm(x, layer.post_attention_norm_weight, config_.rms_norm_eps);
    if (auto* dense = std::get_if<DenseMlp>(&layer.mlp)) {
      x = x + dense->forward(mlp_in);
    } else {
      x = x + std::get<MoeMlp>(layer.mlp).forward(mlp_in, context);
    }
  }
  if (context.cache) context.cache->length += tokens_BS.size(1);
  units_.back()->wait_params();
  return ops::rms_norm(x, norm_weight_, config_.rms_norm_eps);
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

// The transformer: embedding, pre-norm decoder layers, final norm, output head.
#pragma once
#include <memory>
#include <vector>

#include "lib/config/config.h"
#include "lib/data/batch.h"
#include "lib/nn/decoder_layer.h"

namespace scatterlm::nn {

class Model {
 public:
  /// Declares all parameters; allocate(units(), ...) of lib/parallel gives them memory. They have the dtype and device of
  /// `options`; `embedding_decay` says whether weight decay applies to the embedding.
  Model(const ModelConfig& config, at::TensorOptions options, Decay embedding_decay = Decay::kNo);

  /// tokens [B, S] int64 -> input of the output head [B, S, D]: last hidden states after the final norm, divided by
  /// logits_scaling. Positions that go into a cache are held once its advance() is called.
  at::Tensor forward(const at::Tensor& tokens_BS, Context& context);
  /// Sum over tokens of the cross-entropy, fp32 scalar; its mean over tokens is the loss in nats per token.
  at::Tensor cross_entropy_sum(const Batch& batch, Context& context);
  /// Logits of what forward() returns, [N, D] -> [N, V] fp32.
  at::Tensor logits(const at::Tensor& hidden_ND) const;

  const ModelConfig& config() const { return config_; }
  const std::vector<std::unique_ptr<ParameterUnit>>& units() const { return units_; }
  /// Routers in layer order; of one layer, attention before MLP.
  const std::vector<Router*>& routers() const { return routers_; }
  at::Device device() const { return options_.device(); }
  int64_t num_parameters() const;

 private:
  ParameterUnit& add_unit(const std::string& name);
  DecoderLayer make_layer(int64_t index, LayerKind kind, RopeTables& rope);

  ModelConfig config_;
  at::TensorOptions options_;
  std::vector<std::unique_ptr<ParameterUnit>> units_;  // embedding, layers, head
  at::Tensor embedding_;                               ///< [V, D]
  at::Tensor norm_weight_;                             ///< [D]
  at::Tensor head_;                                    ///< [V, D], the embedding itself if tied
  std::vector<DecoderLayer> layers_;
  std::vector<Router*> routers_;
};

}  // namespace scatterlm::nn

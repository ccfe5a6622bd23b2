#pragma once
#include <memory>
#include <optional>

#include "lib/nn/sub_layer.h"
#include "lib/ops/rms_norm.h"

namespace scatterlm::nn {

/// The residual stream between two sub-layers, x + branch: the next norm adds them up.
struct ResidualStream {
  at::Tensor x;                      ///< [B, S, D]
  std::optional<at::Tensor> branch;  ///< [B, S, D], what the last sub-layer adds; nothing before the first layer
};

struct DecoderLayer {
  at::Tensor input_norm_weight;  ///< [D]
  std::unique_ptr<SubLayer> attention;
  at::Tensor post_attention_norm_weight;  ///< [D]
  std::unique_ptr<SubLayer> mlp;
  double eps;                  ///< of the norms
  double residual_multiplier;  ///< of what the sub-layers return

  /// The norm before attention.
  ops::AddedAndNormed input_norm(const ResidualStream& stream) const;
  /// What comes after it. With `recompute: norms` the outputs of both norms are freed until the backward pass needs them.
  ResidualStream forward(const ops::AddedAndNormed& normed, Context& context) const;

 private:
  at::Tensor branch(SubLayer& sub_layer, const ops::AddedAndNormed& normed, const at::Tensor& norm_weight,
                    Context& context) const;
};

}  // namespace scatterlm::nn

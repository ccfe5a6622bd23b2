#include "lib/nn/decoder_layer.h"

#include <ATen/ATen.h>

#include "lib/nn/recompute.h"

namespace scatterlm::nn {

ops::AddedAndNormed DecoderLayer::input_norm(const ResidualStream& stream) const {
  return ops::add_rms_norm(stream.x, stream.branch, input_norm_weight, eps);
}

ResidualStream DecoderLayer::forward(const ops::AddedAndNormed& normed, Context& context) const {
  const auto attended = branch(*attention, normed, input_norm_weight, context);
  const auto post = ops::add_rms_norm(normed.sum, attended, post_attention_norm_weight, eps);
  return {post.sum, branch(*mlp, post, post_attention_norm_weight, context)};
}

at::Tensor DecoderLayer::branch(SubLayer& sub_layer, const ops::AddedAndNormed& normed, const at::Tensor& norm_weight,
                                Context& context) const {
  const auto out = sub_layer.forward(normed.y, context);
  if (context.recompute == Recompute::kNorms) free_until_backward(normed, norm_weight, eps, out);
  return residual_multiplier == 1 ? out : out * residual_multiplier;
}

}  // namespace scatterlm::nn

#include "lib/nn/attention_parts.h"

#include <ATen/ATen.h>

#include "lib/ops/attention.h"
#include "lib/ops/rms_norm.h"
#include "lib/util/error.h"

namespace scatterlm::nn {
namespace {

/// Whether this pass is one over a position behind others, or over the first one, and not over a prompt.
bool is_step(const Context& context, int64_t length) { return context.cache && length == 1; }

}  // namespace

QkNormLayer::QkNormLayer(QkNorm kind, int64_t query_width, int64_t key_width, int64_t head_dim, const SubLayerOptions& options)
    : kind(kind), head_dim(head_dim), eps(options.config.rms_norm_eps) {
  const bool per_head = kind == QkNorm::kHead;
  query_weight =
      options.unit.param(options.name + ".q_norm.weight", {per_head ? head_dim : query_width}, Init::ones(), Decay::kNo);
  key_weight = options.unit.param(options.name + ".k_norm.weight", {per_head ? head_dim : key_width}, Init::ones(), Decay::kNo);
}

void QkNormLayer::count(QkNorm kind, int64_t query_width, int64_t key_width, int64_t head_dim, ParameterCount& count) {
  if (kind == QkNorm::kHead) count.vector(2 * head_dim);
  if (kind == QkNorm::kFull) count.vector(query_width + key_width);
}

at::Tensor QkNormLayer::apply(const at::Tensor& x, const at::Tensor& weight) const {
  if (kind == QkNorm::kFull) return ops::rms_norm(x, weight, eps);
  return ops::rms_norm(x.unflatten(-1, {-1, head_dim}), weight, eps).flatten(-2);
}

std::pair<at::Tensor, at::Tensor> rope_angles(RopeTable& table, Context& context, int64_t length) {
  if (!is_step(context, length)) return table.at(0, length);
  auto& angles = context.step_angles[&table];
  if (!angles.first.defined()) {
    const auto [cos, sin] = context.cache->angles(table);
    const auto& position = context.cache->position();
    angles = {cos.index_select(0, position), sin.index_select(0, position)};
  }
  return angles;
}

at::Tensor attend(const Context& context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t window) {
  if (!context.cache) return ops::attention(q, k, v, context.documents, window);
  auto& layer = context.cache->layer(context.layer, k);
  const int64_t length = k.size(1);
  if (is_step(context, length)) return ops::decode_attention(q, k, v, layer, context.cache->position(), window);
  if (context.cache->length() > 0) fail("[attend] a prompt of {} positions must come first", length);
  layer.k.narrow(1, 0, length).copy_(k);
  layer.v.narrow(1, 0, length).copy_(v);
  return ops::attention(q, k, v, {}, window);
}

}  // namespace scatterlm::nn

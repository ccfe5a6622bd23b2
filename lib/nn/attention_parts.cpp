#include "lib/nn/attention_parts.h"

#include <ATen/ATen.h>

#include "lib/ops/rms_norm.h"

namespace scatterlm::nn {
namespace {

/// Writes `added` [B, S, Hkv, P] behind the `length` positions that `held` has, which grows by doubling. Returns all positions.
at::Tensor append(at::Tensor& held, const at::Tensor& added, int64_t length) {
  const int64_t needed = length + added.size(1);
  if (!held.defined() || held.size(1) < needed) {
    auto grown = at::empty({added.size(0), 2 * needed, added.size(2), added.size(3)}, added.options());
    if (held.defined()) grown.narrow(1, 0, length).copy_(held.narrow(1, 0, length));
    held = grown;
  }
  held.narrow(1, length, added.size(1)).copy_(added);
  return held.narrow(1, 0, needed);
}

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

int64_t first_position(const Context& context) { return context.cache ? context.cache->length : 0; }

std::pair<at::Tensor, at::Tensor> with_cache(const Context& context, const at::Tensor& k, const at::Tensor& v) {
  if (!context.cache) return {k, v};
  auto& layer = context.cache->layers[context.layer];
  return {append(layer.k, k, context.cache->length), append(layer.v, v, context.cache->length)};
}

}  // namespace scatterlm::nn

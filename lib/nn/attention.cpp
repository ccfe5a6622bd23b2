#include "lib/nn/attention.h"

#include <ATen/ATen.h>

#include "lib/ops/attention.h"
#include "lib/ops/linear.h"
#include "lib/ops/parallel_linear.h"
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

/// Keys and values of all positions so far; without a cache, k and v themselves.
std::pair<at::Tensor, at::Tensor> with_cache(const Context& context, const at::Tensor& k, const at::Tensor& v) {
  if (!context.cache) return {k, v};
  auto& layer = context.cache->layers[context.layer];
  return {append(layer.k, k, context.cache->length), append(layer.v, v, context.cache->length)};
}

/// Queries have a place for K experts of every token, no more and no fewer.
RouterConfig without_rounding(RouterConfig router) {
  router.rounding = Rounding::kNone;
  return router;
}

int64_t first_position(const Context& context) { return context.cache ? context.cache->length : 0; }

}  // namespace

QkNormLayer::QkNormLayer(QkNorm kind, const std::string& name, int64_t query_width, int64_t key_width, int64_t head_dim,
                         double eps, ParameterUnit& unit)
    : kind(kind), head_dim(head_dim), eps(eps) {
  const bool per_head = kind == QkNorm::kHead;
  query_weight = unit.param(name + ".q_norm.weight", {per_head ? head_dim : query_width}, Init::ones(), Decay::kNo);
  key_weight = unit.param(name + ".k_norm.weight", {per_head ? head_dim : key_width}, Init::ones(), Decay::kNo);
}

at::Tensor QkNormLayer::apply(const at::Tensor& x, const at::Tensor& weight) const {
  if (kind == QkNorm::kFull) return ops::rms_norm(x, weight, eps);
  return ops::rms_norm(x.unflatten(-1, {-1, head_dim}), weight, eps).flatten(-2);
}

GqaAttention::GqaAttention(const AttentionConfig& config, const std::string& name, int64_t hidden, double norm_eps,
                           InitScale init, ParameterUnit& unit, std::shared_ptr<RopeTable> rope, int64_t window)
    : config(config), window(window), rope(std::move(rope)) {
  const int64_t query = config.num_attention_heads * config.head_dim, key = config.num_key_value_heads * config.head_dim;
  qkv_weight = unit.param(name + ".qkv_proj.weight", {query + 2 * key, hidden}, Init::normal(init.normal), Decay::kYes,
                          {query, key, key});
  o_weight = unit.param(name + ".o_proj.weight", {hidden, query}, Init::normal(init.residual), Decay::kYes, {hidden});
  if (config.bias) {
    qkv_bias = unit.param(name + ".qkv_proj.bias", {query + 2 * key}, Init::zeros(), Decay::kNo);
    o_bias = unit.param(name + ".o_proj.bias", {hidden}, Init::zeros(), Decay::kNo);
  }
  if (config.qk_norm != QkNorm::kNone) qk_norm.emplace(config.qk_norm, name, query, key, config.head_dim, norm_eps, unit);
}

at::Tensor GqaAttention::forward(const at::Tensor& x_BSD, Context& context) {
  const int64_t width = config.head_dim, query = config.num_attention_heads * width, key = config.num_key_value_heads * width;
  const auto parts = ops::linear(x_BSD, qkv_weight, qkv_bias).split_with_sizes({query, key, key}, -1);
  auto q = parts[0], k = parts[1];
  if (qk_norm) {
    q = qk_norm->query(q);
    k = qk_norm->key(k);
  }
  const auto [cos, sin] = rope->at(first_position(context), x_BSD.size(1));
  q = ops::rope(q.unflatten(-1, {-1, width}), cos, sin);
  k = ops::rope(k.unflatten(-1, {-1, width}), cos, sin);
  const auto [keys, values] = with_cache(context, k, parts[2].unflatten(-1, {-1, width}));
  return ops::linear(ops::attention(q, keys, values, context.mask, window).flatten(2), o_weight, o_bias);
}

MoaAttention::MoaAttention(const MoaConfig& config, const RouterConfig& router_config, const std::string& name, int64_t hidden,
                           double norm_eps, InitScale init, ParameterUnit& unit, std::shared_ptr<RopeTable> rope,
                           at::Device device)
    : config(config),
      rope(std::move(rope)),
      router(without_rounding(router_config), name + ".router", config.num_experts, config.num_experts_per_tok, hidden,
             init.normal, unit, device) {
  const int64_t width = config.num_key_value_heads * config.head_dim;
  q_weight = unit.param(name + ".experts.q_proj", {config.num_experts, width, hidden}, Init::normal(init.normal), Decay::kYes,
                        {width});
  kv_weight = unit.param(name + ".kv_proj.weight", {2 * width, hidden}, Init::normal(init.normal), Decay::kYes, {width, width});
  o_weight = unit.param(name + ".experts.o_proj", {config.num_experts, hidden, width}, Init::normal(init.residual), Decay::kYes,
                        {hidden});
  if (config.qk_norm != QkNorm::kNone) qk_norm.emplace(config.qk_norm, name, width, width, config.head_dim, norm_eps, unit);
}

at::Tensor MoaAttention::forward(const at::Tensor& x_BSD, Context& context) {
  using ops::RowOrder;
  const int64_t batch = x_BSD.size(0), length = x_BSD.size(1), top_k = config.num_experts_per_tok;
  const int64_t heads = config.num_key_value_heads, width = config.head_dim;
  const auto x_TD = x_BSD.flatten(0, 1);
  const auto [gates_TK, routing] = router.forward(x_TD, context);

  auto q = ops::parallel_linear(x_TD, q_weight, routing, RowOrder::kToken, RowOrder::kToken);  // [T K, n P]
  const auto kv = ops::linear(x_BSD, kv_weight).chunk(2, -1);
  auto k = kv[0];
  if (qk_norm) {
    q = qk_norm->query(q);
    k = qk_norm->key(k);
  }
  const auto [cos, sin] = rope->at(first_position(context), length);
  // The rotation puts the K query heads of one key-value head together, as grouped-query attention wants them.
  q = ops::rope(q.view({batch, length, top_k, heads, width}).transpose(2, 3), cos, sin).flatten(2, 3);
  k = ops::rope(k.unflatten(-1, {heads, width}), cos, sin);
  const auto [keys, values] = with_cache(context, k, kv[1].unflatten(-1, {heads, width}));
  const auto mixed = ops::attention(q, keys, values, context.mask)
                         .view({batch, length, heads, top_k, width})
                         .transpose(2, 3)
                         .reshape({batch * length * top_k, heads * width});
  return ops::parallel_linear(mixed, o_weight, routing, RowOrder::kToken, RowOrder::kToken, gates_TK).view_as(x_BSD);
}

}  // namespace scatterlm::nn

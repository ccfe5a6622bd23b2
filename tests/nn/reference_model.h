// The same transformer once more, from plain tensor operations and autograd alone: oracle for values and gradients.
#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "lib/nn/model.h"
#include "tests/ops/token_rounding_cases.h"

namespace scatterlm::test {

class ReferenceModel {
 public:
  explicit ReferenceModel(const nn::Model& model) : config_(model.config()) {
    for (const auto& unit : model.units()) {
      for (const auto& p : unit->params()) weights[p.name] = p.tensor.detach().clone().requires_grad_();
    }
    for (const auto* router : model.routers()) gate_scale_[router->name] = router->options.routed_scaling_factor;
  }

  /// Mean cross-entropy + coefficients * router losses, as one step over this batch trains it.
  at::Tensor objective(const Batch& batch) {
    router_loss_ = at::zeros({}, at::kDouble);
    auto x = w("embed_tokens.weight").index({batch.input_BS}) * config_.embedding_multiplier;
    const double branch = config_.residual_multiplier;
    const auto kinds = config_.layer_kinds();
    for (size_t i = 0; i < kinds.size(); i++) {
      const auto name = "layers." + std::to_string(i);
      const auto a = norm(x, name + ".input_layernorm.weight");
      const int64_t window = kinds[i].attention == AttentionKind::kSwa ? config_.attention.window : x.size(1);
      x = x + branch * (kinds[i].attention == AttentionKind::kMoa ? moa(a, name + ".attention")
                                                                  : gqa(a, name + ".attention", window));
      const auto m = norm(x, name + ".post_attention_layernorm.weight");
      x = x +
          branch * (kinds[i].mlp == MlpKind::kMoe ? moe(m, name + ".mlp") : dense(m, name + ".mlp", config_.dense.activation));
    }
    const auto head = weights.count("lm_head.weight") ? w("lm_head.weight") : w("embed_tokens.weight");
    const auto log_probs = at::log_softmax(at::matmul(norm(x, "norm.weight"), head.t()) / config_.logits_scaling, -1);
    return -log_probs.gather(-1, batch.target_BS.unsqueeze(-1)).mean() +
           router_loss_ / static_cast<double>(std::max<size_t>(gate_scale_.size(), 1));
  }

  std::map<std::string, at::Tensor> weights;

 private:
  const at::Tensor& w(const std::string& name) const { return weights.at(name); }

  at::Tensor rms(const at::Tensor& x, const at::Tensor& weight) const {
    return x * (x.square().mean(-1, true) + config_.rms_norm_eps).rsqrt() * weight;
  }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const { return rms(x, w(name)); }

  /// The frequency of one pair, scaled: lib/nn/rope_scaling.h.
  double frequency(int64_t pair, int64_t width, double theta) const {
    const auto& c = config_.rope_scaling;
    const double f = std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(width));
    const auto length = static_cast<double>(c.original_max_position_embeddings);
    if (c.type == RopeScaling::kLinear) return f / c.factor;
    if (c.type == RopeScaling::kLlama3) {
      const double wave = 2 * M_PI / f;
      if (wave < length / c.high_freq_factor) return f;
      if (wave > length / c.low_freq_factor) return f / c.factor;
      const double t = (length / wave - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
      return (1 - t) * f / c.factor + t * f;
    }
    if (c.type != RopeScaling::kYarn) return f;
    const auto place = [&](double turns) {
      return static_cast<double>(width) * std::log(length / (turns * 2 * M_PI)) / (2 * std::log(theta));
    };
    const double low = std::max(std::floor(place(c.beta_fast)), 0.0);
    const double high = std::min(std::ceil(place(c.beta_slow)), static_cast<double>(width - 1));
    const double ramp = std::clamp((static_cast<double>(pair) - low) / (high == low ? 0.001 : high - low), 0.0, 1.0);
    return ramp * f / c.factor + (1 - ramp) * f;
  }

  /// x [B, S, H, P]
  at::Tensor rotate(const at::Tensor& x, double theta) const {
    const int64_t half = x.size(3) / 2;
    auto frequencies = at::empty({half}, at::kDouble);
    for (int64_t i = 0; i < half; i++) frequencies[i] = frequency(i, x.size(3), theta);
    const auto angle = at::arange(x.size(1), at::kDouble).unsqueeze(1) * frequencies;
    const bool yarn = config_.rope_scaling.type == RopeScaling::kYarn;
    const double scale = yarn ? 0.1 * std::log(config_.rope_scaling.factor) + 1 : 1;
    auto table = [&](const at::Tensor& t) { return (scale * t).to(at::kFloat).to(at::kDouble).unsqueeze(1); };  // kept in fp32
    const auto cos = table(angle.cos()), sin = table(angle.sin());
    const auto a = x.narrow(3, 0, half), b = x.narrow(3, half, half);
    return at::cat({a * cos - b * sin, b * cos + a * sin}, 3);
  }

  /// q, k, v [B, S, H, P], as many heads in each; a query sees itself and the window - 1 positions before it.
  static at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t window,
                           std::optional<double> multiplier = {}) {
    auto scores = at::einsum("bshp,bthp->bhst", {q, k}) * multiplier.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
    const auto all = at::ones({q.size(1), q.size(1)}, at::kBool);
    scores = scores.masked_fill(all.triu(1) | all.tril(-window), -INFINITY);
    return at::einsum("bhst,bthp->bshp", {scores.softmax(-1), v});
  }

  at::Tensor qk_norm(const at::Tensor& x, QkNorm kind, const std::string& name, int64_t width) const {
    if (kind == QkNorm::kNone) return x;
    if (kind == QkNorm::kFull) return norm(x, name);
    return norm(x.unflatten(-1, {-1, width}), name).flatten(-2);
  }

  at::Tensor gqa(const at::Tensor& x, const std::string& name, int64_t window) const {
    const auto& c = config_.attention;
    const int64_t query = c.num_attention_heads * c.head_dim, key = c.num_key_value_heads * c.head_dim;
    auto qkv = at::matmul(x, w(name + ".qkv_proj.weight").t());
    if (c.bias || c.qkv_bias) qkv = qkv + w(name + ".qkv_proj.bias");
    auto heads = [&](const at::Tensor& t) {
      return (c.clip_qkv > 0 ? t.clamp(-c.clip_qkv, c.clip_qkv) : t).unflatten(-1, {-1, c.head_dim});
    };
    const auto q =
        rotate(heads(qk_norm(qkv.narrow(-1, 0, query), c.qk_norm, name + ".q_norm.weight", c.head_dim)), c.rope_theta);
    const auto k =
        rotate(heads(qk_norm(qkv.narrow(-1, query, key), c.qk_norm, name + ".k_norm.weight", c.head_dim)), c.rope_theta);
    const int64_t group = c.num_attention_heads / c.num_key_value_heads;
    auto repeat = [&](const at::Tensor& t) { return t.repeat_interleave(group, 2); };
    const auto mixed = attend(q, repeat(k), repeat(heads(qkv.narrow(-1, query + key, key))), window, c.multiplier);
    auto out = at::matmul(mixed.flatten(2), w(name + ".o_proj.weight").t());
    return c.bias ? out + w(name + ".o_proj.bias") : out;
  }

  struct Routed {
    at::Tensor gates, ids;  // [T, K], or [T, E] if rounded
  };
  Routed route(const at::Tensor& x_TD, const std::string& name, int64_t experts, int64_t top_k, bool rounds) {
    const auto& c = config_.router;
    const auto logits = at::matmul(x_TD, w(name + ".weight").t());
    const auto scores = c.score == RouterScore::kSigmoid ? logits.sigmoid() : logits.softmax(-1);
    const auto ids = std::get<1>(scores.topk(top_k));
    auto gates = scores.gather(1, ids);
    if (c.norm_topk_prob) gates = gates / gates.sum(1, true);
    const auto probs = c.score == RouterScore::kSigmoid ? scores / scores.sum(1, true) : scores;
    const auto tokens = static_cast<double>(x_TD.size(0));
    const auto fraction =
        at::one_hot(ids, experts).to(at::kDouble).sum(at::IntArrayRef{0, 1}) / (tokens * static_cast<double>(top_k));
    if (c.balance == Balance::kAux) {
      router_loss_ = router_loss_ + c.aux_loss_coef * static_cast<double>(experts) * (fraction * probs.mean(0)).sum();
    }
    router_loss_ = router_loss_ + c.z_loss_coef * logits.logsumexp(-1).square().mean();
    gates = gates * gate_scale_.at(name);
    if (c.rounding == Rounding::kNone || !rounds) return {gates, ids};
    const auto fill = (c.score == RouterScore::kSigmoid && c.norm_topk_prob ? probs : scores) * gate_scale_.at(name);
    const auto pairs = fill.scatter(1, ids, gates);  // all experts of every token, most with gate 0
    return {pairs * rounding::selection(pairs, ids), at::arange(experts).expand_as(pairs)};
  }

  static at::Tensor per_slot(const at::Tensor& weight, const at::Tensor& ids) {  // [T, K, out, in]
    return weight.index_select(0, ids.flatten()).view({ids.size(0), ids.size(1), weight.size(1), weight.size(2)});
  }

  at::Tensor moa(const at::Tensor& x, const std::string& name) {
    const auto& c = config_.moa;
    const int64_t batch = x.size(0), length = x.size(1), heads = c.num_key_value_heads, top_k = c.num_experts_per_tok;
    const auto x_TD = x.flatten(0, 1);
    const auto [gates, ids] = route(x_TD, name + ".router", c.num_experts, top_k, /*rounds=*/false);
    auto q = at::einsum("tjod,td->tjo", {per_slot(w(name + ".experts.q_proj"), ids), x_TD});
    q = qk_norm(q, c.qk_norm, name + ".q_norm.weight", c.head_dim);
    const auto kv = at::matmul(x, w(name + ".kv_proj.weight").t()).chunk(2, -1);
    auto split = [&](const at::Tensor& t) { return t.unflatten(-1, {heads, c.head_dim}); };
    const auto k = rotate(split(qk_norm(kv[0], c.qk_norm, name + ".k_norm.weight", c.head_dim)), c.rope_theta);
    // JetMoE: query head j * heads + h uses key-value head h, so keys and values are tiled.
    const auto q_heads = rotate(q.view({batch, length, top_k * heads, c.head_dim}), c.rope_theta);
    const auto mixed = attend(q_heads, k.repeat({1, 1, top_k, 1}), split(kv[1]).repeat({1, 1, top_k, 1}), length);
    const auto out =
        at::einsum("tjdo,tjo->tjd", {per_slot(w(name + ".experts.o_proj"), ids), mixed.reshape({batch * length, top_k, -1})});
    const auto sum = (out * gates.unsqueeze(-1)).sum(1);
    return (c.output_bias ? sum + w(name + ".output_bias") : sum).view_as(x);
  }

  static at::Tensor act(const at::Tensor& h, Activation kind) {
    switch (kind) {
      case Activation::kRelu2: return h.relu().square();
      case Activation::kGelu: return at::gelu(h, "tanh");
      default: break;
    }
    const auto parts = h.chunk(2, -1);
    if (kind == Activation::kReglu) return parts[0].relu() * parts[1];
    if (kind == Activation::kGeglu) return at::gelu(parts[0], "tanh") * parts[1];
    return at::silu(parts[0]) * parts[1];
  }

  at::Tensor dense(const at::Tensor& x, const std::string& name, Activation kind) const {
    const auto biased = [&](const at::Tensor& y, const std::string& bias) { return weights.count(bias) ? y + w(bias) : y; };
    const auto h = biased(at::matmul(x, w(name + ".up_proj.weight").t()), name + ".up_proj.bias");
    return biased(at::matmul(act(h, kind), w(name + ".down_proj.weight").t()), name + ".down_proj.bias");
  }

  at::Tensor moe(const at::Tensor& x, const std::string& name) {
    const auto& c = config_.moe;
    const auto x_TD = x.flatten(0, 1);
    const auto [gates, ids] = route(x_TD, name + ".router", c.num_experts, c.num_experts_per_tok, /*rounds=*/true);
    auto h = at::einsum("tjfd,td->tjf", {per_slot(w(name + ".experts.up_proj"), ids), x_TD});
    if (c.bias) h = h + w(name + ".experts.up_proj_bias").index({ids});
    auto y = at::einsum("tjdf,tjf->tjd", {per_slot(w(name + ".experts.down_proj"), ids), act(h, c.activation)});
    if (c.bias) y = y + w(name + ".experts.down_proj_bias").index({ids});
    auto out = (y * gates.unsqueeze(-1)).sum(1);
    if (c.output_bias) out = out + w(name + ".output_bias");
    if (c.shared_intermediate_size > 0) {
      const auto shared = dense(x_TD, name + ".shared", c.activation);
      out = out + (c.shared_gate ? shared * at::matmul(x_TD, w(name + ".shared_gate.weight").t()).sigmoid() : shared);
    }
    return out.view_as(x);
  }

  ModelConfig config_;
  std::map<std::string, double> gate_scale_;  ///< of each router
  at::Tensor router_loss_;                    ///< sum over routers
};

}  // namespace scatterlm::test

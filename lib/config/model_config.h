// Keys of `model`. config.h explains the visit lists.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/config/enums.h"
#include "lib/config/key_traits.h"

namespace scatterlm {

struct AttentionConfig {
  int64_t num_attention_heads = 4;
  int64_t num_key_value_heads = 4;
  int64_t head_dim = 32;
  double rope_theta = 10000;
  QkNorm qk_norm = QkNorm::kNone;
  bool bias = false;
  bool qkv_bias = false;
  double clip_qkv = 0;
  std::optional<double> multiplier;  // none: auto
  int64_t window = 4096;

  bool operator==(const AttentionConfig&) const = default;

  template <class V>
  void visit(V& v) {
    v.key("num_attention_heads", num_attention_heads, "query heads", Range{1, 1024});
    v.key("num_key_value_heads", num_key_value_heads, "key-value heads; divides num_attention_heads", Range{1, 1024});
    v.key("head_dim", head_dim, "width of one head; even", Range{2, 512});
    v.key("rope_theta", rope_theta, "base of the rotary embedding", Range{1, 1e12});
    v.key("qk_norm", qk_norm, "RMSNorm of queries and keys: per head, or over the whole projection");
    v.key("bias", bias, "bias on the q, k, v and output projections");
    v.key("qkv_bias", qkv_bias, "bias on the q, k and v projections only");
    v.key("clip_qkv", clip_qkv, "queries, keys and values are clamped to [-clip_qkv, clip_qkv], after qk_norm; 0 = not",
          Range{0, 1e6});
    v.key("multiplier", multiplier, "factor on the attention scores; auto: 1/sqrt(head_dim)", Range{1e-6, 1e3});
    v.key("window", window, "swa layers: a query sees itself and the window - 1 positions before it", Range{1, 1 << 24});
  }
};

struct MoaConfig {
  int64_t num_experts = 8;
  int64_t num_experts_per_tok = 2;
  int64_t num_key_value_heads = 2;
  int64_t head_dim = 32;
  double rope_theta = 10000;
  QkNorm qk_norm = QkNorm::kNone;
  bool output_bias = false;

  bool operator==(const MoaConfig&) const = default;

  template <class V>
  void visit(V& v) {
    v.key("num_experts", num_experts, "attention experts, each with its own query and output projection", Range{1, 4096});
    v.key("num_experts_per_tok", num_experts_per_tok, "experts of one token (top-k)", Range{1, 64});
    v.key("num_key_value_heads", num_key_value_heads,
          "key-value heads, shared by all experts; query heads = this * num_experts_per_tok", Range{1, 1024});
    v.key("head_dim", head_dim, "width of one head; even", Range{2, 512});
    v.key("rope_theta", rope_theta, "base of the rotary embedding", Range{1, 1e12});
    v.key("qk_norm", qk_norm, "RMSNorm of queries and keys: per head, or over the whole projection of one expert");
    v.key("output_bias", output_bias, "one bias, shared by all experts, on the sum of their outputs");
  }
};

struct DenseConfig {
  int64_t intermediate_size = 512;
  Activation activation = Activation::kSwiglu;
  bool bias = false;

  bool operator==(const DenseConfig&) const = default;

  template <class V>
  void visit(V& v) {
    v.key("intermediate_size", intermediate_size, "width of the MLP", Range{1, 1 << 20});
    v.key("activation", activation, "swiglu, geglu and reglu are gated; relu2 and gelu are not");
    v.key("bias", bias, "bias on the up and down projections");
  }
};

struct MoeConfig {
  int64_t num_experts = 8;
  int64_t num_experts_per_tok = 2;
  int64_t moe_intermediate_size = 128;
  int64_t shared_intermediate_size = 0;
  bool shared_gate = false;
  Activation activation = Activation::kSwiglu;
  bool bias = false;
  bool output_bias = false;

  bool operator==(const MoeConfig&) const = default;

  template <class V>
  void visit(V& v) {
    v.key("num_experts", num_experts, "MLP experts", Range{1, 4096});
    v.key("num_experts_per_tok", num_experts_per_tok, "experts of one token (top-k)", Range{1, 64});
    v.key("moe_intermediate_size", moe_intermediate_size, "width of one expert", Range{1, 1 << 20});
    v.key("shared_intermediate_size", shared_intermediate_size, "width of the expert that sees every token; 0 = none",
          Range{0, 1 << 20});
    v.key("shared_gate", shared_gate, "the shared expert's output is multiplied by the sigmoid of a linear map of the token");
    v.key("activation", activation, "swiglu, geglu and reglu are gated; relu2 and gelu are not");
    v.key("bias", bias, "bias on the up and down projections of the experts, not of the shared one");
    v.key("output_bias", output_bias, "one bias, shared by all experts, on the sum of their outputs");
  }
};

/// Formulas: docs/routing.md.
struct RouterConfig {
  RouterScore score = RouterScore::kSoftmax;
  bool topk_before_softmax = false;
  bool norm_topk_prob = true;
  std::optional<double> routed_scaling_factor;  // none: auto
  Balance balance = Balance::kAux;
  double aux_loss_coef = 0.01;
  double z_loss_coef = 0.001;
  double bias_update_rate = 0.001;
  Rounding rounding = Rounding::kNone;

  bool operator==(const RouterConfig&) const = default;

  template <class V>
  void visit(V& v) {
    v.key("score", score, "scores of the experts from the logits");
    v.key("topk_before_softmax", topk_before_softmax,
          "choose on the logits, then softmax over the chosen (needs score: softmax)");
    v.key("norm_topk_prob", norm_topk_prob, "gates of one token sum to 1");
    v.key("routed_scaling_factor", routed_scaling_factor,
          "factor on the gates; auto: an untrained layer is as large as a dense one as wide as K experts", Range{0, 1000});
    v.key("balance", balance, "load balancing: Switch auxiliary loss, selection bias without a loss, or none");
    v.key("aux_loss_coef", aux_loss_coef,
          "coefficient of the load balancing loss, a mean over routers, 1 at perfect balance (balance: aux)",
          {Range{0, 100}, OnResume::kWarn});
    v.key("z_loss_coef", z_loss_coef,
          "coefficient of the z-loss: squared logsumexp of router logits, mean over tokens and routers",
          {Range{0, 100}, OnResume::kWarn});
    v.key("bias_update_rate", bias_update_rate, "step of the selection bias after each optimiser step (balance: bias)",
          {Range{0, 1}, OnResume::kWarn});
    v.key("rounding", rounding, "token rounding of moe layers in training: rows of an expert to a multiple of 128");
  }
};

/// Rotary embedding for sequences longer than those of the first training. Formulas: lib/nn/rope_scaling.h.
struct RopeScalingConfig {
  RopeScaling type = RopeScaling::kNone;
  double factor = 1;
  int64_t original_max_position_embeddings = 8192;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double beta_fast = 32;
  double beta_slow = 1;
  std::optional<double> attention_factor;  // none: auto

  bool operator==(const RopeScalingConfig&) const = default;

  template <class V>
  void visit(V& v) {
    v.key("type", type, "linear: all frequencies; llama3 and yarn: the low ones, as published with Llama 3.1 and YaRN");
    v.key("factor", factor, "what frequencies are divided by", Range{1, 1e6});
    v.key("original_max_position_embeddings", original_max_position_embeddings,
          "sequence length of the first training (llama3, yarn)", Range{1, 1e9});
    v.key("low_freq_factor", low_freq_factor, "llama3: fewer turns than this in the original length are scaled in full",
          Range{1e-3, 1e6});
    v.key("high_freq_factor", high_freq_factor, "llama3: more turns than this in the original length are not scaled",
          Range{1e-3, 1e6});
    v.key("beta_fast", beta_fast, "yarn: more turns than this in the original length are not scaled", Range{1e-3, 1e6});
    v.key("beta_slow", beta_slow, "yarn: fewer turns than this in the original length are scaled in full", Range{1e-3, 1e6});
    v.key("attention_factor", attention_factor, "yarn: factor on rotated queries and keys; auto: 0.1 ln(factor) + 1",
          Range{1e-3, 1e3});
  }
};

constexpr int64_t kMaxLayers = 4096;

/// Name of a kind of layer in `layers`, and the keys and groups of `model` that it reads. What one kind names here is ignored
/// by kinds that do not name it; what is inside a group goes with the group otherwise.
struct LayerKindKeys {
  std::string_view name;
  std::array<std::string_view, 3> keys;
};

enum class AttentionKind { kGqa, kMoa, kSwa };
enum class MlpKind { kDense, kMoe };
/// Indexed by the enums. lib/nn/layer_kinds.h has the layers.
inline constexpr LayerKindKeys kAttentionKinds[] = {
    {"gqa", {"attention"}}, {"moa", {"moa", "router"}}, {"swa", {"attention", "attention.window"}}};
inline constexpr LayerKindKeys kMlpKinds[] = {{"dense", {"dense"}}, {"moe", {"moe", "router", "router.rounding"}}};

/// Kinds of one layer.
struct LayerKind {
  AttentionKind attention = AttentionKind::kGqa;
  MlpKind mlp = MlpKind::kDense;

  bool operator==(const LayerKind&) const = default;
};

struct ModelConfig {
  int64_t vocab_size = 257;
  int64_t hidden_size = 128;
  int64_t num_hidden_layers = 4;
  std::string layers = "gqa+moe*4";
  double rms_norm_eps = 1e-5;
  double initializer_range = 0.02;
  bool tie_word_embeddings = true;
  double embedding_multiplier = 1;
  double residual_multiplier = 1;
  double logits_scaling = 1;
  RopeScalingConfig rope_scaling;
  AttentionConfig attention;
  MoaConfig moa;
  DenseConfig dense;
  MoeConfig moe;
  RouterConfig router;

  /// `layers` parsed: one entry per layer, num_hidden_layers of them. Throws Error on a bad pattern or another length.
  std::vector<LayerKind> layer_kinds() const;

  bool operator==(const ModelConfig&) const = default;

  template <class V>
  void visit(V& v) {
    v.key("vocab_size", vocab_size, "rows of the embedding; every token must be below it", Range{2, 1 << 24});
    v.key("hidden_size", hidden_size, "model width", Range{1, 1 << 20});
    v.key("num_hidden_layers", num_hidden_layers, "layers; unless given, as many as the pattern in layers has",
          Range{1, kMaxLayers});
    v.key("layers", layers, "kinds of the layers, attention+mlp: gqa, swa or moa, dense or moe; `*n` repeats, `,` joins");
    v.key("rms_norm_eps", rms_norm_eps, "epsilon of every RMSNorm", Range{1e-12, 1});
    v.key("initializer_range", initializer_range,
          "standard deviation of initial weights; those into the residual stream get it / sqrt(2 * layers)",
          {Range{0, 10}, OnResume::kWarn});
    v.key("tie_word_embeddings", tie_word_embeddings, "the output head is the embedding");
    v.key("embedding_multiplier", embedding_multiplier, "factor on embeddings", Range{1e-6, 1e6});
    v.key("residual_multiplier", residual_multiplier, "factor on what attention and MLP add to the residual stream",
          Range{1e-6, 1e6});
    v.key("logits_scaling", logits_scaling, "logits are divided by this", Range{1e-6, 1e6});
    v.group("rope_scaling", rope_scaling);
    v.group("attention", attention);
    v.group("moa", moa);
    v.group("dense", dense);
    v.group("moe", moe);
    v.group("router", router);
  }
};

}  // namespace scatterlm

// Grouped-query attention (Ainslie et al., arXiv 2305.13245): over all positions (gqa), or over a sliding window (swa; Beltagy
// et al., arXiv 2004.05150, section 3.1).
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "lib/nn/attention_parts.h"
#include "lib/nn/layer_kinds.h"
#include "lib/ops/linear.h"
#include "lib/ops/qk_norm_rope.h"

namespace scatterlm::nn {
namespace {

struct Widths {
  int64_t query, key;
  explicit Widths(const AttentionConfig& config)
      : query(config.num_attention_heads * config.head_dim), key(config.num_key_value_heads * config.head_dim) {}
};

class GqaAttention final : public SubLayer {
 public:
  /// With a window above 0 a query sees that many positions, itself included. The cache of generation holds all positions
  /// all the same.
  GqaAttention(const SubLayerOptions& options, int64_t window)
      : config_(options.config.attention), window_(window), rope_(options.rope.get(config_.head_dim, config_.rope_theta)) {
    const auto [query, key] = Widths(config_);
    const int64_t hidden = options.config.hidden_size;
    auto& unit = options.unit;
    qkv_weight_ = unit.param(options.name + ".qkv_proj.weight", {query + 2 * key, hidden}, Init::normal(options.init.normal),
                             Decay::kYes, {query, key, key});
    o_weight_ = unit.param(options.name + ".o_proj.weight", {hidden, query}, Init::normal(options.init.residual), Decay::kYes,
                           {hidden});
    if (config_.bias || config_.qkv_bias)
      qkv_bias_ = unit.param(options.name + ".qkv_proj.bias", {query + 2 * key}, Init::zeros(), Decay::kNo);
    if (config_.bias) o_bias_ = unit.param(options.name + ".o_proj.bias", {hidden}, Init::zeros(), Decay::kNo);
    if (config_.qk_norm != QkNorm::kNone) qk_norm_.emplace(config_.qk_norm, query, key, config_.head_dim, options);
  }

  at::Tensor forward(const at::Tensor& x_BSD, Context& context) override {
    const auto [cos, sin] = rope_angles(*rope_, context, x_BSD.size(1));
    auto [q, k, v] = ops::qk_norm_rope(ops::linear(x_BSD, qkv_weight_, qkv_bias_), qk_norm_rope(), cos, sin);
    // ops::attention divides the scores by sqrt(P).
    if (config_.multiplier) q = q * (*config_.multiplier * std::sqrt(static_cast<double>(config_.head_dim)));
    return ops::linear(attend(context, q, k, v, window_).flatten(2), o_weight_, o_bias_);
  }

 private:
  ops::QkNormRopeOptions qk_norm_rope() const {
    ops::QkNormRopeOptions options{
        .query_heads = config_.num_attention_heads, .key_heads = config_.num_key_value_heads, .clip = config_.clip_qkv};
    if (qk_norm_) {
      options.query_weight = qk_norm_->query_weight;
      options.key_weight = qk_norm_->key_weight;
      options.eps = qk_norm_->eps;
    }
    return options;
  }

  AttentionConfig config_;
  int64_t window_;
  std::shared_ptr<RopeTable> rope_;
  at::Tensor qkv_weight_;  ///< [(H + 2 Hkv) P, D]: query rows, key rows, value rows
  at::Tensor o_weight_;    ///< [D, H P]
  std::optional<at::Tensor> qkv_bias_, o_bias_;
  std::optional<QkNormLayer> qk_norm_;
};

void add_parameters(const ModelConfig& model, ParameterCount& count) {
  const AttentionConfig& config = model.attention;
  const auto [query, key] = Widths(config);
  count.matrix((query + 2 * key) * model.hidden_size);
  count.matrix(model.hidden_size * query);
  if (config.bias || config.qkv_bias) count.vector(query + 2 * key);
  if (config.bias) count.vector(model.hidden_size);
  QkNormLayer::count(config.qk_norm, query, key, config.head_dim, count);
}

double flops(const ModelConfig& model, double positions_seen) {
  return 12.0 * static_cast<double>(Widths(model.attention).query) * positions_seen;
}

/// Queries, keys and values before the rotation (the values are attended to where they are, and share their memory), rotated
/// queries and keys, the output of attention, and in fp32 its logsumexp per head and the scales of the norms. Clipped values
/// are a copy, and what is normalised before it is clipped is kept as well.
double saved_bytes(const ModelConfig& model, double element_bytes) {
  const AttentionConfig& config = model.attention;
  const auto widths = Widths(config);
  const auto query = static_cast<double>(widths.query), key = static_cast<double>(widths.key);
  const bool normed = config.qk_norm != QkNorm::kNone;
  double elements = (query + 2 * key) + (query + key) + query;
  if (config.clip_qkv > 0) elements += key + (normed ? query + key : 0);
  const int64_t heads = config.num_attention_heads, key_heads = config.num_key_value_heads;
  const int64_t scales = config.qk_norm == QkNorm::kHead ? heads + key_heads : normed ? 2 : 0;
  return element_bytes * elements + 4 * static_cast<double>(heads + scales);
}

}  // namespace

SubLayerKind gqa() {
  return {
      .make = [](const SubLayerOptions& options) -> std::unique_ptr<SubLayer> {
        return std::make_unique<GqaAttention>(options, /*window=*/0);
      },
      .add_parameters = add_parameters,
      .attention_flops = [](const ModelConfig& model, int64_t length) { return flops(model, static_cast<double>(length) / 2); },
      .saved_bytes = saved_bytes};
}

SubLayerKind swa() {
  return {.make = [](const SubLayerOptions& options) -> std::unique_ptr<SubLayer> {
            return std::make_unique<GqaAttention>(options, options.config.attention.window);
          },
          .add_parameters = add_parameters,
          .attention_flops =
              [](const ModelConfig& model, int64_t length) {
                const auto window = static_cast<double>(std::min(model.attention.window, length));
                return flops(model, window - window * window / (2 * static_cast<double>(length)));
              },
          .saved_bytes = saved_bytes};
}

}  // namespace scatterlm::nn

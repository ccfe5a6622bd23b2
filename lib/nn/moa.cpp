// Mixture of attention as in JetMoE: query and output projections per expert, keys and values shared, one routing decision for
// both. Zhang et al., arXiv 2210.05144; Shen et al., 2404.07413.
#include <ATen/ATen.h>

#include <optional>

#include "lib/nn/attention_parts.h"
#include "lib/nn/layer_kinds.h"
#include "lib/ops/linear.h"
#include "lib/ops/parallel_linear.h"

namespace scatterlm::nn {
namespace {

/// Queries have a place for K experts of every token, no more and no fewer.
RouterConfig without_rounding(RouterConfig router) {
  router.rounding = Rounding::kNone;
  return router;
}

/// Of the queries of one expert, and of all keys.
int64_t projection_width(const MoaConfig& config) { return config.num_key_value_heads * config.head_dim; }

class MoaAttention final : public SubLayer {
 public:
  explicit MoaAttention(const SubLayerOptions& options)
      : config_(options.config.moa),
        rope_(options.rope.get(config_.head_dim, config_.rope_theta)),
        router_(without_rounding(options.config.router), options.name + ".router", config_.num_experts,
                config_.num_experts_per_tok, options.config.hidden_size, options.init.normal, options.unit, options.device) {
    const int64_t width = projection_width(config_), hidden = options.config.hidden_size;
    const auto normal = Init::normal(options.init.normal);
    auto& unit = options.unit;
    q_weight_ =
        unit.param(options.name + ".experts.q_proj", {config_.num_experts, width, hidden}, normal, Decay::kYes, {width});
    kv_weight_ = unit.param(options.name + ".kv_proj.weight", {2 * width, hidden}, normal, Decay::kYes, {width, width});
    o_weight_ = unit.param(options.name + ".experts.o_proj", {config_.num_experts, hidden, width},
                           Init::normal(options.init.residual), Decay::kYes, {hidden});
    if (config_.output_bias) output_bias_ = unit.param(options.name + ".output_bias", {hidden}, Init::zeros(), Decay::kNo);
    if (config_.qk_norm != QkNorm::kNone) qk_norm_.emplace(config_.qk_norm, width, width, config_.head_dim, options);
  }

  at::Tensor forward(const at::Tensor& x_BSD, Context& context) override {
    using ops::RowOrder;
    const int64_t batch = x_BSD.size(0), length = x_BSD.size(1), top_k = config_.num_experts_per_tok;
    const int64_t heads = config_.num_key_value_heads, width = config_.head_dim;
    const auto [gates_TK, routing, x_TD] = router_.forward(x_BSD.flatten(0, 1), context);

    auto q = ops::parallel_linear(x_TD, q_weight_, routing, RowOrder::kToken, RowOrder::kToken);  // [T K, n P]
    const auto kv = ops::linear(x_TD.view_as(x_BSD), kv_weight_).chunk(2, -1);
    auto k = kv[0];
    if (qk_norm_) {
      q = qk_norm_->query(q);
      k = qk_norm_->key(k);
    }
    const auto [cos, sin] = rope_angles(*rope_, context, length);
    // The rotation puts the K query heads of one key-value head together, as grouped-query attention wants them.
    q = ops::rope(q.view({batch, length, top_k, heads, width}).transpose(2, 3), cos, sin).flatten(2, 3);
    k = ops::rope(k.unflatten(-1, {heads, width}), cos, sin);
    const auto mixed = attend(context, q, k, kv[1].unflatten(-1, {heads, width}))
                           .view({batch, length, heads, top_k, width})
                           .transpose(2, 3)
                           .reshape({batch * length * top_k, heads * width});
    const auto out = ops::parallel_linear(mixed, o_weight_, routing, RowOrder::kToken, RowOrder::kToken, gates_TK);
    return (output_bias_ ? out + *output_bias_ : out).view_as(x_BSD);
  }

  Router* router() override { return &router_; }

 private:
  MoaConfig config_;
  std::shared_ptr<RopeTable> rope_;
  Router router_;
  at::Tensor q_weight_;                    ///< [E, n P, D], n = num_key_value_heads
  at::Tensor kv_weight_;                   ///< [2 n P, D]: key rows, value rows
  at::Tensor o_weight_;                    ///< [E, D, n P]
  std::optional<at::Tensor> output_bias_;  ///< [D]
  std::optional<QkNormLayer> qk_norm_;
};

}  // namespace

SubLayerKind moa() {
  return {.make = [](const SubLayerOptions& options) -> std::unique_ptr<SubLayer> {
            return std::make_unique<MoaAttention>(options);
          },
          .add_parameters =
              [](const ModelConfig& model, ParameterCount& count) {
                const MoaConfig& config = model.moa;
                const int64_t width = projection_width(config);
                count.matrix(config.num_experts * model.hidden_size);  // router
                count.matrices(config.num_experts, config.num_experts_per_tok, 2 * width * model.hidden_size);
                count.matrix(2 * width * model.hidden_size);
                if (config.output_bias) count.vector(model.hidden_size);
                QkNormLayer::count(config.qk_norm, width, width, config.head_dim, count);
              },
          .attention_flops =
              [](const ModelConfig& model, int64_t length) {
                const auto width = static_cast<double>(projection_width(model.moa) * model.moa.num_experts_per_tok);
                return 12.0 * width * static_cast<double>(length) / 2;
              },
          .saved_bytes =
              [](const ModelConfig& model, double element_bytes) {
                // Keys and values before the rotation, rotated queries and keys, the output of attention and its copy in the
                // order of the experts; in fp32 the logsumexp per head and the scales of the norms.
                const MoaConfig& config = model.moa;
                const int64_t top_k = config.num_experts_per_tok, key = projection_width(config), query = top_k * key;
                const bool normed = config.qk_norm != QkNorm::kNone;
                const int64_t heads = config.num_key_value_heads;
                const int64_t scales = config.qk_norm == QkNorm::kHead ? (top_k + 1) * heads : normed ? top_k + 1 : 0;
                const int64_t elements = 2 * key + (query + key) + 2 * query + (normed ? query : 0);
                return router_saved_bytes(config.num_experts, top_k) + element_bytes * static_cast<double>(elements) +
                       4 * static_cast<double>(top_k * heads + scales);
              }};
}

}  // namespace scatterlm::nn

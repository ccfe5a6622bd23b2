// ScatterMoE MLP (Tan et al., arXiv 2403.08245): routed experts and, if configured, one shared expert that sees every token.
#include <ATen/ATen.h>

#include <optional>

#include "lib/nn/dense_mlp.h"
#include "lib/nn/layer_kinds.h"
#include "lib/ops/linear.h"
#include "lib/ops/moe_mlp.h"

namespace scatterlm::nn {
namespace {

class MoeMlp final : public SubLayer {
 public:
  explicit MoeMlp(const SubLayerOptions& options)
      : config_(options.config.moe),
        router_(options.config.router, options.name + ".router", config_.num_experts, config_.num_experts_per_tok,
                options.config.hidden_size, options.init.normal, options.unit, options.device) {
    const int64_t experts = config_.num_experts, width = config_.moe_intermediate_size, hidden = options.config.hidden_size;
    const int64_t up = up_rows(config_.activation, width);
    auto& unit = options.unit;
    up_weight_ = unit.param(options.name + ".experts.up_proj", {experts, up, hidden}, Init::normal(options.init.normal),
                            Decay::kYes, up_matrices(config_.activation, width));
    down_weight_ = unit.param(options.name + ".experts.down_proj", {experts, hidden, width},
                              Init::normal(options.init.residual), Decay::kYes, {hidden});
    if (config_.bias) {
      up_bias_ = unit.param(options.name + ".experts.up_proj_bias", {experts, up}, Init::zeros(), Decay::kNo);
      down_bias_ = unit.param(options.name + ".experts.down_proj_bias", {experts, hidden}, Init::zeros(), Decay::kNo);
    }
    if (config_.output_bias) output_bias_ = unit.param(options.name + ".output_bias", {hidden}, Init::zeros(), Decay::kNo);
    if (config_.shared_intermediate_size == 0) return;
    const DenseConfig shared{.intermediate_size = config_.shared_intermediate_size, .activation = config_.activation};
    shared_.emplace(shared, options.name + ".shared", options);
    if (config_.shared_gate)
      shared_gate_weight_ =
          unit.param(options.name + ".shared_gate.weight", {1, hidden}, Init::normal(options.init.normal), Decay::kYes);
  }

  at::Tensor forward(const at::Tensor& x_BSD, Context& context) override {
    const auto [gates, routing, x_TD] = router_.forward(x_BSD.flatten(0, 1), context);
    const auto experts = [&, &gates = gates, &routing = routing](const at::Tensor& rows_TD) {
      const auto out =
          ops::moe_mlp(rows_TD, up_weight_, down_weight_, gates, routing, config_.activation, {up_bias_, down_bias_});
      return output_bias_ ? out + *output_bias_ : out;
    };
    if (shared_ && !shared_gate_weight_) return shared_->forward_beside(x_TD, experts).view_as(x_BSD);
    auto out = experts(x_TD);
    if (shared_) out = out + shared_->forward(x_TD, context) * at::sigmoid(ops::linear(x_TD, *shared_gate_weight_));
    return out.view_as(x_BSD);
  }

  Router* router() override { return &router_; }

 private:
  MoeConfig config_;
  Router router_;
  at::Tensor up_weight_;                   ///< [E, 2F, D] or [E, F, D]
  at::Tensor down_weight_;                 ///< [E, D, F]
  std::optional<at::Tensor> up_bias_;      ///< [E, 2F] or [E, F]
  std::optional<at::Tensor> down_bias_;    ///< [E, D]
  std::optional<at::Tensor> output_bias_;  ///< [D]
  std::optional<DenseMlp> shared_;
  std::optional<at::Tensor> shared_gate_weight_;  ///< [1, D]
};

}  // namespace

SubLayerKind moe() {
  return {.make = [](const SubLayerOptions& options) -> std::unique_ptr<SubLayer> { return std::make_unique<MoeMlp>(options); },
          .add_parameters =
              [](const ModelConfig& model, ParameterCount& count) {
                const MoeConfig& config = model.moe;
                const int64_t experts = config.num_experts, top_k = config.num_experts_per_tok;
                const int64_t hidden = model.hidden_size, width = config.moe_intermediate_size;
                count.matrix(experts * hidden);  // router
                count.matrices(experts, top_k, mlp_elements(config.activation, hidden, width));
                if (config.bias) count.vectors(experts, top_k, up_rows(config.activation, width) + hidden);
                count.matrix(mlp_elements(config.activation, hidden, config.shared_intermediate_size));
                if (config.shared_intermediate_size > 0 && config.shared_gate) count.matrix(hidden);
                if (config.output_bias) count.vector(hidden);
              },
          .saved_bytes =
              [](const ModelConfig& model, double element_bytes) {
                // Only the pre-activation of each expert's row: backward computes the activation again.
                const MoeConfig& config = model.moe;
                const int64_t pre_activations =
                    config.num_experts_per_tok * up_rows(config.activation, config.moe_intermediate_size);
                return router_saved_bytes(config.num_experts, config.num_experts_per_tok) +
                       element_bytes * static_cast<double>(pre_activations) +
                       dense_saved_bytes(config.activation, config.shared_intermediate_size, element_bytes);
              }};
}

}  // namespace scatterlm::nn

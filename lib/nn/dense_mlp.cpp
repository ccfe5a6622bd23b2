#include "lib/nn/dense_mlp.h"

#include <ATen/ATen.h>

#include "lib/nn/layer_kinds.h"
#include "lib/ops/activation.h"
#include "lib/ops/linear.h"

namespace scatterlm::nn {

int64_t up_rows(Activation activation, int64_t width) { return is_gated(activation) ? 2 * width : width; }

std::vector<int64_t> up_matrices(Activation activation, int64_t width) {
  return is_gated(activation) ? std::vector{width, width} : std::vector{width};
}

int64_t mlp_elements(Activation activation, int64_t hidden, int64_t width) {
  return hidden * (up_rows(activation, width) + width);
}

double dense_saved_bytes(Activation activation, int64_t width, double element_bytes) {
  return element_bytes * static_cast<double>(up_rows(activation, width) + width);
}

DenseMlp::DenseMlp(const DenseConfig& config, const std::string& name, const SubLayerOptions& options)
    : activation_(config.activation) {
  const auto activation = config.activation;
  const int64_t hidden = options.config.hidden_size, width = config.intermediate_size;
  up_weight_ = options.unit.param(name + ".up_proj.weight", {up_rows(activation, width), hidden},
                                  Init::normal(options.init.normal), Decay::kYes, up_matrices(activation, width));
  down_weight_ = options.unit.param(name + ".down_proj.weight", {hidden, width}, Init::normal(options.init.residual),
                                    Decay::kYes, {hidden});
  if (!config.bias) return;
  up_bias_ = options.unit.param(name + ".up_proj.bias", {up_rows(activation, width)}, Init::zeros(), Decay::kNo);
  down_bias_ = options.unit.param(name + ".down_proj.bias", {hidden}, Init::zeros(), Decay::kNo);
}

at::Tensor DenseMlp::forward(const at::Tensor& x, Context&) {
  return ops::linear(ops::activation(ops::linear(x, up_weight_, up_bias_), activation_), down_weight_, down_bias_);
}

at::Tensor DenseMlp::forward_beside(const at::Tensor& x_TD, const std::function<at::Tensor(const at::Tensor&)>& other) {
  const auto up = ops::linear_and_rows(x_TD, up_weight_);
  return ops::add_linear(other(up.x_TN), ops::activation(up.y_TM, activation_), down_weight_);
}

SubLayerKind dense() {
  return {.make = [](const SubLayerOptions& options) -> std::unique_ptr<SubLayer> {
            return std::make_unique<DenseMlp>(options.config.dense, options.name, options);
          },
          .add_parameters =
              [](const ModelConfig& model, ParameterCount& count) {
                const DenseConfig& config = model.dense;
                count.matrix(mlp_elements(config.activation, model.hidden_size, config.intermediate_size));
                if (config.bias) count.vector(up_rows(config.activation, config.intermediate_size) + model.hidden_size);
              },
          .saved_bytes =
              [](const ModelConfig& model, double element_bytes) {
                return dense_saved_bytes(model.dense.activation, model.dense.intermediate_size, element_bytes);
              }};
}

}  // namespace scatterlm::nn

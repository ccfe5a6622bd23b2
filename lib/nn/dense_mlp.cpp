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

DenseMlp::DenseMlp(Activation activation, int64_t width, const std::string& name, const SubLayerOptions& options)
    : activation_(activation) {
  const int64_t hidden = options.config.hidden_size;
  up_weight_ = options.unit.param(name + ".up_proj.weight", {up_rows(activation, width), hidden},
                                  Init::normal(options.init.normal), Decay::kYes, up_matrices(activation, width));
  down_weight_ = options.unit.param(name + ".down_proj.weight", {hidden, width}, Init::normal(options.init.residual),
                                    Decay::kYes, {hidden});
}

at::Tensor DenseMlp::forward(const at::Tensor& x, Context&) {
  return ops::linear(ops::activation(ops::linear(x, up_weight_), activation_), down_weight_);
}

SubLayerKind dense() {
  return {.make = [](const SubLayerOptions& options) -> std::unique_ptr<SubLayer> {
            const DenseConfig& config = options.config.dense;
            return std::make_unique<DenseMlp>(config.activation, config.intermediate_size, options.name, options);
          },
          .add_parameters =
              [](const ModelConfig& model, ParameterCount& count) {
                count.matrix(mlp_elements(model.dense.activation, model.hidden_size, model.dense.intermediate_size));
              }};
}

}  // namespace scatterlm::nn

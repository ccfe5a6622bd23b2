#include "lib/nn/mlp.h"

#include <ATen/ATen.h>

#include "lib/ops/activation.h"
#include "lib/ops/linear.h"
#include "lib/ops/moe_mlp.h"

namespace scatterlm::nn {
namespace {

int64_t up_rows(Activation activation, int64_t width) { return is_gated(activation) ? 2 * width : width; }

/// Gate and up, or up alone.
std::vector<int64_t> up_matrices(Activation activation, int64_t width) {
  return is_gated(activation) ? std::vector{width, width} : std::vector{width};
}

}  // namespace

DenseMlp::DenseMlp(Activation activation, int64_t width, const std::string& name, int64_t hidden, InitScale init,
                   ParameterUnit& unit)
    : activation(activation) {
  up_weight = unit.param(name + ".up_proj.weight", {up_rows(activation, width), hidden}, Init::normal(init.normal), Decay::kYes,
                         up_matrices(activation, width));
  down_weight = unit.param(name + ".down_proj.weight", {hidden, width}, Init::normal(init.residual), Decay::kYes, {hidden});
}

at::Tensor DenseMlp::forward(const at::Tensor& x) const {
  return ops::linear(ops::activation(ops::linear(x, up_weight), activation), down_weight);
}

MoeMlp::MoeMlp(const MoeConfig& config, const RouterConfig& router_config, const std::string& name, int64_t hidden,
               InitScale init, ParameterUnit& unit, at::Device device)
    : config(config),
      router(router_config, name + ".router", config.num_experts, config.num_experts_per_tok, hidden, init.normal, unit,
             device) {
  const int64_t width = config.moe_intermediate_size;
  up_weight = unit.param(name + ".experts.up_proj", {config.num_experts, up_rows(config.activation, width), hidden},
                         Init::normal(init.normal), Decay::kYes, up_matrices(config.activation, width));
  down_weight = unit.param(name + ".experts.down_proj", {config.num_experts, hidden, width}, Init::normal(init.residual),
                           Decay::kYes, {hidden});
  if (config.bias) {
    up_bias = unit.param(name + ".experts.up_proj_bias", {config.num_experts, up_rows(config.activation, width)}, Init::zeros(),
                         Decay::kNo);
    down_bias = unit.param(name + ".experts.down_proj_bias", {config.num_experts, hidden}, Init::zeros(), Decay::kNo);
  }
  if (config.shared_intermediate_size > 0) {
    shared.emplace(config.activation, config.shared_intermediate_size, name + ".shared", hidden, init, unit);
  }
}

at::Tensor MoeMlp::forward(const at::Tensor& x_BSD, Context& context) {
  const auto x_TD = x_BSD.flatten(0, 1);
  const auto [gates, routing] = router.forward(x_TD, context);
  auto out = ops::moe_mlp(x_TD, up_weight, down_weight, gates, routing, config.activation, {up_bias, down_bias});
  if (shared) out = out + shared->forward(x_TD);
  return out.view_as(x_BSD);
}

}  // namespace scatterlm::nn

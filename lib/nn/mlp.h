#pragma once
#include <optional>
#include <string>

#include "lib/config/config.h"
#include "lib/nn/attention.h"
#include "lib/nn/context.h"
#include "lib/nn/router.h"
#include "lib/parallel/parameter_unit.h"

namespace scatterlm::nn {

/// W_down act(W_up x). Gated activations have gate rows first in W_up.
struct DenseMlp {
  DenseMlp(Activation activation, int64_t width, const std::string& name, int64_t hidden, InitScale init, ParameterUnit& unit);
  at::Tensor forward(const at::Tensor& x) const;

  Activation activation;
  at::Tensor up_weight;    ///< [2F, D] or [F, D]
  at::Tensor down_weight;  ///< [D, F]
};

/// ScatterMoE MLP: routed experts and, if configured, one shared expert that sees every token.
struct MoeMlp {
  MoeMlp(const MoeConfig& config, const RouterConfig& router_config, const std::string& name, int64_t hidden, InitScale init,
         ParameterUnit& unit, at::Device device);
  /// x [B, S, D] -> [B, S, D]
  at::Tensor forward(const at::Tensor& x_BSD, Context& context);

  MoeConfig config;
  Router router;
  at::Tensor up_weight;                 ///< [E, 2F, D] or [E, F, D]
  at::Tensor down_weight;               ///< [E, D, F]
  std::optional<at::Tensor> up_bias;    ///< [E, 2F] or [E, F]
  std::optional<at::Tensor> down_bias;  ///< [E, D]
  std::optional<DenseMlp> shared;
};

}  // namespace scatterlm::nn

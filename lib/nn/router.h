#pragma once
#include <string>

#include "lib/config/config.h"
#include "lib/nn/context.h"
#include "lib/ops/router.h"
#include "lib/ops/routing.h"
#include "lib/parallel/parameter_unit.h"

namespace scatterlm::nn {

/// `routed_scaling_factor: auto`: the factor on the gates with which an expert layer's output has, at initialisation, the
/// standard deviation of a dense layer as wide as the K chosen experts together. Outputs of experts are independent and of one
/// variance, so it is sqrt(K / E[sum over the chosen of gate^2]) for gates by `options` from independent normal logits of
/// standard deviation `logit_std`. The expectation is a mean over samples from a fixed stream, the factor rounded to four
/// digits: the same on every machine.
double gate_scale_at_init(ops::RouterOptions options, int64_t num_experts, double logit_std);

/// Router of one expert layer, with its balancing bias. Its losses are made by lib/train/router_losses.h.
struct Router {
  Router(const RouterConfig& config, std::string name, int64_t num_experts, int64_t top_k, int64_t hidden, double std,
         ParameterUnit& unit, at::Device device);

  struct Output {
    at::Tensor gates;  ///< [T, K], or [R] of rounded routing
    ops::Routing routing;
    at::Tensor x_TD;  ///< to be read by the experts and all others: see ops::linear_and_rows
  };
  /// While training, with `rounding: nearest`, the routing is rounded (lib/ops/token_rounding.h). Losses, counts and the
  /// balancing bias are those of the top-k choice either way.
  Output forward(const at::Tensor& x_TD, Context& context);

  /// After a step in which expert e had c_e tokens, counts_E [E] fp64: b_e += rate * sign(mean c - c_e), times `apply` (0 where
  /// the step is skipped). Nothing without a bias. Wang et al., arXiv 2408.15664.
  void update_bias(const at::Tensor& counts_E, const at::Tensor& apply);

  RouterConfig config;
  ops::RouterOptions options;
  std::string name;
  int64_t num_experts;
  at::Tensor weight;  ///< [E, D]
  at::Tensor bias;    ///< [E] fp32, selection only; undefined unless balance: bias
};

/// Bytes per token that the backward pass needs: logits in fp32, and of each of the K choices expert, gate and places in the
/// lists of rows.
double router_saved_bytes(int64_t num_experts, int64_t top_k);

}  // namespace scatterlm::nn

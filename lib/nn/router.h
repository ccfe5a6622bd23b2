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

/// Router of one expert layer with its losses, its balancing bias and its statistics over the current optimiser step.
struct Router {
  Router(const RouterConfig& config, std::string name, int64_t num_experts, int64_t top_k, int64_t hidden, double std,
         ParameterUnit& unit, at::Device device);

  struct Output {
    at::Tensor gates;  ///< [T, K], or [R] of rounded routing
    ops::Routing routing;
  };
  /// While training, with `rounding: nearest`, the routing is rounded (lib/ops/token_rounding.h). Losses, counts and the
  /// balancing bias are those of the top-k choice either way.
  Output forward(const at::Tensor& x_TD, Context& context);

  /// b_e += rate * sign(mean c - c_e), times `apply` (0 where the step is skipped): Wang et al., arXiv 2408.15664.
  void update_bias(const at::Tensor& apply);

  /// Load balancing loss E * sum_e f_e P_e and z-loss, the mean squared logsumexp, of this router over the whole step of
  /// `tokens`, exact whatever the micro-batches. [2], fp64.
  at::Tensor step_losses(double tokens) const;

  RouterConfig config;
  ops::RouterOptions options;
  std::string name;
  int64_t num_experts;
  at::Tensor weight;  ///< [E, D]
  at::Tensor bias;    ///< [E] fp32, selection only; undefined unless balance: bias
  /// Parts of RouterStatistics.
  at::Tensor counts;      ///< [E] fp64: rows of each expert over all ranks
  at::Tensor prob_sum;    ///< [E] fp64
  at::Tensor lse_sq_sum;  ///< [] fp64
  at::Tensor rounded;     ///< [2] fp64: pairs dropped and pairs filled; undefined unless `rounding: nearest`
};

/// Statistics of all routers of a model over the current optimiser step, in one tensor: a micro-batch costs one all-reduce and
/// a number of launches that does not grow with that of the routers.
class RouterStatistics {
 public:
  RouterStatistics() = default;
  /// Gives each router its part.
  RouterStatistics(const std::vector<Router*>& routers, at::Device device);

  void begin_step() { totals_.zero_(); }
  /// After the forward pass of a micro-batch: adds what its routers chose on all ranks, and gives step.loss.
  void add(RouterStep& step, const RouterConfig& config);

 private:
  at::Tensor totals_;  ///< fp64: counts of all routers, their prob_sum, their lse_sq_sum, rounded of those that have it
  at::Tensor experts_per_pick_;  ///< fp64, for each count: E / K of its router
};

}  // namespace scatterlm::nn

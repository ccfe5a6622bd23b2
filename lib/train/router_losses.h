// Losses and statistics of a model's routers over an optimiser step, made from the choices that its forward passes return.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "lib/distributed/comm.h"
#include "lib/nn/model.h"

namespace scatterlm {

/// Sums of one router over the micro-batches and ranks of the current step: views of one tensor.
struct RouterSums {
  nn::Router* router = nullptr;
  at::Tensor counts;      ///< [E] fp64: rows of each expert
  at::Tensor prob_sum;    ///< [E] fp64
  at::Tensor lse_sq_sum;  ///< [] fp64
  at::Tensor rounded;     ///< [2] fp64: pairs dropped and pairs filled; undefined unless `rounding: nearest`

  /// Load balancing loss E * sum_e f_e P_e and z-loss, the mean squared logsumexp, over the whole step of `tokens`, exact
  /// whatever the micro-batches. [2], fp64.
  at::Tensor losses(double tokens) const;
};

/// All sums are in one tensor: a micro-batch costs one all-reduce and a number of launches that does not grow with that of the
/// routers.
class RouterLosses {
 public:
  /// Of the routers of `model`, which outlives this.
  explicit RouterLosses(const nn::Model& model);

  /// The sums start from zero.
  void begin_step() { totals_.zero_(); }

  /// After the forward pass of a micro-batch: adds what its routers chose on all ranks to the sums, and returns the routers'
  /// part of the objective: load balancing loss and z-loss times their coefficients, means over the routers; undefined if there
  /// is none. `tokens_of_step` counts all ranks and micro-batches, `tokens_so_far` those up to and including this one. All
  /// ranks call it.
  at::Tensor add(std::vector<nn::RouterChoice> choices, double tokens_so_far, double tokens_of_step, Comm& comm);

  /// Updates the balancing biases after the step; `apply` is 0 where the step is skipped.
  void update_biases(const at::Tensor& apply);

  /// One entry per router, in the order of Model::routers().
  const std::vector<RouterSums>& routers() const { return routers_; }

 private:
  RouterConfig config_;
  std::vector<RouterSums> routers_;
  at::Tensor totals_;  ///< fp64: counts of all routers, their prob_sum, their lse_sq_sum, rounded of those that have it
  at::Tensor experts_per_pick_;  ///< fp64, for each count: E / K of its router
};

}  // namespace scatterlm

// AdamW over this rank's slices of the units. Loshchilov and Hutter, arXiv 1711.05101.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "lib/config/config.h"
#include "lib/nn/unit.h"

namespace scatterlm {

class AdamW {
 public:
  /// Optimiser state of one unit: flat, shard_end - shard_begin elements.
  struct Shard {
    Unit* unit;
    at::Tensor weights;     ///< fp32 master copy; the unit's own parameters where those have the state's dtype
    at::Tensor exp_avg;     ///< first moment
    at::Tensor exp_avg_sq;  ///< second moment
  };

  /// Master weights start from the initial values in full precision, not from their rounded copy.
  AdamW(const OptimConfig& config, const std::vector<std::unique_ptr<Unit>>& units, int64_t seed);

  /// One update from the units' gradient slices, which are divided by `grad_scale` [1] fp32; nothing changes where `skip` [1]
  /// fp32 is 1. Then the own slices of the parameters hold the new weights.
  void step(double lr, const at::Tensor& grad_scale, const at::Tensor& skip);

  std::vector<Shard>& shards() { return shards_; }
  /// Updates made so far, [] fp32: the step count of the bias correction.
  at::Tensor updates() const { return updates_; }
  /// After the master weights were loaded: own slices of the parameters follow them.
  void write_parameters();

 private:
  void update(bool decayed, double lr, const at::Tensor& grad_scale, const at::Tensor& skip);

  OptimConfig config_;
  std::vector<Shard> shards_;
  at::Tensor updates_;
};

/// The ranks' slices of the parameters to every rank.
void gather_parameters(const std::vector<std::unique_ptr<Unit>>& units, Comm& comm);

/// L2 norm over all units and ranks of the reduced gradients, [1] fp32 on the units' device.
at::Tensor global_grad_norm(const std::vector<std::unique_ptr<Unit>>& units, Comm& comm);

}  // namespace scatterlm

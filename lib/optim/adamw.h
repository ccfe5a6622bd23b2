// AdamW over this rank's share of the units. Loshchilov and Hutter, arXiv 1711.05101.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <memory>
#include <vector>

#include "lib/config/config.h"
#include "lib/parallel/parameter_unit.h"

namespace scatterlm {

class AdamW {
 public:
  /// State of the elements begin .. end-1 of a unit, flat: this rank's slice, or all of them where ranks share nothing.
  struct Shard {
    ParameterUnit* unit;
    int64_t begin, end;
    at::Tensor weights;     ///< fp32 master copy; the unit's own parameters where those have the state's dtype
    at::Tensor exp_avg;     ///< first moment
    at::Tensor exp_avg_sq;  ///< second moment
  };

  /// Everything is zero until initialise() or a checkpoint. `share`: each rank keeps the state of its slices alone.
  AdamW(const OptimConfig& config, const std::vector<std::unique_ptr<ParameterUnit>>& units, Comm& comm, bool share);

  /// Weights of an untrained model, in full precision, and the parameters of all ranks with them.
  void initialise(int64_t seed);

  /// One update from `grads`, per unit those of the shard's elements, which are divided by `grad_scale` [1] fp32; nothing
  /// changes where `skip` [1] fp32 is 1. Then the parameters of all ranks follow.
  void step(const std::vector<at::Tensor>& grads, double lr, const at::Tensor& grad_scale, const at::Tensor& skip);

  /// The next step begins, on the device, after this: until then someone copies the shards.
  void wait_before_step(std::shared_ptr<c10::Event> copied) { copied_ = std::move(copied); }

  std::vector<Shard>& shards() { return shards_; }
  /// Updates made so far, [] fp32: the step count of the bias correction.
  at::Tensor updates() const { return updates_; }
  /// After the weights were loaded: the parameters of all ranks follow them.
  void publish();

 private:
  struct Update {
    double lr;
    const at::Tensor &grad_scale, &skip;
  };
  void update(const std::vector<at::Tensor>& grads, bool decayed, const Update& how);

  OptimConfig config_;
  Comm& comm_;
  bool share_;
  std::vector<Shard> shards_;
  at::Tensor updates_;
  std::shared_ptr<c10::Event> copied_;
};

}  // namespace scatterlm

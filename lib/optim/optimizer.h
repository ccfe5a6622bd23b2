// What every optimiser has in common: master weights of a rank's shards, their publication, and named state for checkpoints.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <memory>
#include <string>
#include <vector>

#include "lib/config/config.h"
#include "lib/parallel/parameter_unit.h"
#include "lib/parallel/sharding.h"

namespace scatterlm {

class Optimizer {
 public:
  /// A tensor that an optimiser keeps for some elements of a unit. A checkpoint has it as NAME/PARAMETER of each parameter
  /// that these elements belong to.
  struct State {
    std::string name;
    ElementRange elements;
    at::Tensor values;  ///< flat, elements.size()
  };

  /// What this rank keeps of one unit: the elements that it updates.
  struct Shard {
    ParameterUnit* unit;
    ElementRange elements;
    at::Tensor params;         ///< flat, of the unit
    at::Tensor weights;        ///< flat fp32 master copy; `params` where those have the state's dtype
    std::vector<State> state;  ///< of all these elements or of parts of them
  };

  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Weights of an untrained model, in full precision, and the parameters of all ranks with them.
  void initialise(int64_t seed);

  /// One update from `grads`, for each unit those of its shard's elements, flat fp32 or bf16, which are divided by `grad_scale`
  /// [1] fp32; nothing changes where `skip` [1] fp32 is 1. Then the parameters of all ranks follow. Does not wait for the
  /// device.
  void step(const std::vector<at::Tensor>& grads, double lr, const at::Tensor& grad_scale, const at::Tensor& skip);

  /// The next step begins, on the device, after this event: until then a checkpoint copies the shards.
  void wait_before_step(std::shared_ptr<c10::Event> copied) { copied_ = std::move(copied); }

  /// In the order of the units. Zero until initialise() or a checkpoint fills them.
  const std::vector<Shard>& shards() const { return shards_; }
  const Sharding& sharding() const { return sharding_; }
  /// Updates made so far, [] fp32: the step count of the bias correction.
  at::Tensor updates() const { return updates_; }
  /// After the weights were loaded: the parameters of all ranks follow them.
  void publish();

 protected:
  struct Update {
    const std::vector<at::Tensor>& grads;
    double lr;
    const at::Tensor &grad_scale, &skip;
  };

  Optimizer(const OptimConfig& config, const std::vector<std::unique_ptr<ParameterUnit>>& units, Comm& comm,
            const Sharding& sharding);

  /// Zeros for these elements of a shard, in the state's dtype, kept and saved under `name`.
  at::Tensor add_state(Shard& shard, const std::string& name, ElementRange elements);
  std::vector<Shard>& mutable_shards() { return shards_; }
  Comm& comm() const { return comm_; }

 private:
  void gather();
  /// Changes weights and state of the shards, and lets their params follow. updates() counts this one already.
  virtual void update(const Update& update) = 0;

  Comm& comm_;
  Sharding sharding_;
  std::vector<Shard> shards_;
  at::Tensor updates_;
  std::shared_ptr<c10::Event> copied_;
};

/// The optimiser that optim.name asks for.
std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config, const std::vector<std::unique_ptr<ParameterUnit>>& units,
                                          Comm& comm, const Sharding& sharding);

}  // namespace scatterlm

// From the gradients of every rank and micro-batch to those of the step.
#pragma once
#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>
#include <vector>

#include "lib/config/config.h"
#include "lib/parallel/parameter_unit.h"
#include "lib/parallel/sharding.h"

namespace scatterlm {

/// Reduces each unit as soon as its backward is done, while that of the units below goes on: over the ranks, each of which gets
/// the sum of its slice. Units go in the order last to first on every rank, whatever the order in which they become ready.
///
///   parallel.zero 0, 1   one gradient buffer per unit, reduced in the last micro-batch of a step; 0 then gathers the slices
///   parallel.zero 2      two buffers that units take in turn, each from the reduction of the unit above to its own; in each
///                        micro-batch, and slices add up. A gradient that comes before that waits in a buffer of its own.
///
/// Gradients are kept in `dtype`. What travels as bf16 otherwise is first copied to one of two buffers. One rank keeps its
/// gradients where they are.
class GradientReducer {
 public:
  GradientReducer(const ParallelConfig& config, const std::vector<std::unique_ptr<ParameterUnit>>& units, Comm& comm,
                  DataType dtype = DataType::kFloat32);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Before the first micro-batch of a step, whose gradients replace those of the step before.
  void begin_step();
  /// Around the backward pass of a micro-batch.
  void begin_micro_batch(bool last);
  void end_micro_batch();

  /// L2 norm over all units and ranks, [1] fp32 on the units' device. After the last micro-batch.
  at::Tensor norm() const;
  /// Per unit the gradients of the elements that this rank updates: its slice, or all with zero 0.
  const std::vector<at::Tensor>& reduced() const { return reduced_; }

 private:
  struct Hook;
  struct UnitState {
    ParameterUnit* unit;
    at::Tensor own;               ///< the reduced slice
    int64_t waiting_for = 0;      ///< parameters without a gradient in this micro-batch
    std::vector<unsigned> hooks;  ///< per parameter
  };
  /// A reduction under way, and where its result is to be: the reduced slice, or that of what travels.
  struct InFlight {
    UnitState* state;
    CollectiveHandle ticket;
    at::Tensor part;
  };

  void begin_next();
  static void prepare(UnitState& state, const Param& param, const at::Tensor& grad);
  void note_ready(UnitState& state);
  void reduce_next();
  at::Tensor sent(UnitState& state);
  void finish_oldest();

  Comm& comm_;
  Sharding sharding_;
  std::vector<UnitState> units_;
  std::vector<at::Tensor> reduced_;
  std::vector<at::Tensor> buffers_;  ///< that of unit i is i modulo their number; none: gradients travel from where they are
  bool first_ = true;                ///< reduction of the step
  bool reducing_ = false;            ///< in this micro-batch
  size_t left_ = 0;                  ///< units still to reduce: the first so many
  std::deque<InFlight> in_flight_;
  std::vector<CollectiveHandle> gathers_;  ///< of reduced slices, with zero 0
};

}  // namespace scatterlm

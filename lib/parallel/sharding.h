// What data-parallel ranks share out between them, and which elements of a unit that leaves to each: ZeRO stages 0 to 2.
// Rajbhandari et al., arXiv 1910.02054.
#pragma once
#include "lib/config/config.h"
#include "lib/parallel/parameter_unit.h"

namespace scatterlm {

/// Decided here from `parallel.zero` alone; who needs to know asks this.
///
///   ZeRO stage 0   every rank has all gradients and all of the optimiser's state
///   1              a rank has the state of its slices, and updates those
///   2              and their gradients alone
struct Sharding {
  Sharding(const ParallelConfig& config, const Comm& comm)
      : state(config.zero >= 1), gradients(config.zero == 2 && comm.world() > 1) {}

  bool state;      ///< optimiser state and reduced gradients are of this rank's slices; parameters are gathered after an update
  bool gradients;  ///< so are the gradients that micro-batches add up

  /// Elements that this rank updates, whose reduced gradients and optimiser state it has.
  ElementRange updated(const ParameterUnit& unit) const { return state ? saved(unit) : ElementRange{0, unit.size()}; }
  /// Elements that this rank writes into checkpoints: each element is written once, whatever the ranks share.
  ElementRange saved(const ParameterUnit& unit) const { return {unit.slice_begin(), unit.slice_end()}; }
};

}  // namespace scatterlm

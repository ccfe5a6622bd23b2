// The benchmarks of `scatterlm bench`: check a result, then time it.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "lib/bench/inputs.h"
#include "lib/bench/machine.h"

namespace scatterlm::bench {

/// How one shape is measured.
struct Conditions {
  const Machine& machine;
  RoutingPattern routing;
  int64_t rounds = 0;  ///< of each variant; 0: see num_rounds
};

/// What was measured: rows of the evidence file (apart from the shape), and the same for people.
struct Measured {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  std::string text;
};

/// The op: metadata, forward and backward, beside plain LibTorch and a dense MLP of equal FLOPs; then its kernels alone. One
/// row. Writes inputs, output and gradients to `dump`, unless that is empty, before it checks them.
Measured measure_moe_mlp(const MoeInputs& in, const Conditions& conditions, const std::string& dump);

/// Kernels alone, one row each. `bench`: grouped_gemm, gather_sum or routing.
Measured measure_kernels(const std::string& bench, const MoeInputs& in, const Conditions& conditions);

}  // namespace scatterlm::bench

// Models side by side: how fast each trained, and what was equal between them.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/config/config.h"
#include "lib/train/execution_setup.h"

namespace scatterlm {

/// One model, and what was measured of it.
struct Side {
  std::string name;  ///< of its configuration file, without folder and extension
  std::string path;  ///< of its configuration
  Config config;
  ExecutionSetup numerics;
  double minutes = 0;            ///< to train for, by the speed measured first; 0 = the tokens of the configuration
  double peak_gib = 0;           ///< tensors: weights, gradients, optimiser state and the activations of a step
  std::vector<double> block_ms;  ///< mean of a step, per block; blocks of the same index were measured one after the other
};

/// Something that makes a comparison fair where it is equal.
struct Condition {
  std::string name;
  std::string first, second;
  bool equal;
};

/// Tokens, sequence length, batch, passes, precision, optimiser; every key of the model, those of a kind of layer if both have
/// it; FLOPs and parameters, which are equal within 2 %.
std::vector<Condition> conditions(const Side& first, const Side& second);

/// A column per model and a line per figure, "median (p10 to p90)" where it was measured per block; then the ratio of every
/// model to the first. Below: pairs whose ratios spread too widely over the blocks for a conclusion, and what was equal and
/// what was not. MFU where the peak is known.
std::string comparison_text(const std::vector<Side>& sides);

/// Row of the evidence file: name, config, medians tok_s, step_ms, flops_per_s and mfu (null where the peak is not known), each
/// with _p10 and _p90 over the blocks; block_ms, peak_gib, total_parameters, active_parameters, flops_per_token.
nlohmann::ordered_json comparison_row(const Side& side);

/// What the rows do not hold: `ratio`, the second over the first, with _p10 and _p90 over the pairs of blocks where there are
/// pairs; and `conditions`.
nlohmann::ordered_json comparison_ratios(const Side& first, const Side& second);

}  // namespace scatterlm

// Rotary embedding for sequences longer than those of the first training. With f_i = theta^(-2i/P) the frequency of pair i, L
// the original length, s = factor, and L f_i / (2 pi) the turns of the pair in the original length:
//
//   linear  f_i / s (Chen et al., arXiv 2306.15595)
//   llama3  f_i where turns > high, f_i / s where turns < low, in between (1-t) f_i / s + t f_i with
//           t = (turns - low) / (high - low) (Llama 3.1, arXiv 2407.21783)
//   yarn    r f_i / s + (1-r) f_i, where r rises linearly in i from 0 to 1 between the pairs that make beta_fast and beta_slow
//           turns, both rounded outwards; rotated queries and keys are multiplied by attention_factor (Peng et al., arXiv
//           2309.00071)
#pragma once
#include <ATen/core/Tensor.h>

#include "lib/config/model_config.h"

namespace scatterlm::nn {

struct ScaledRope {
  at::Tensor frequencies;  ///< [P/2] fp64
  double factor;           ///< on cosines and sines
};

ScaledRope scaled_rope(int64_t head_dim, double theta, const RopeScalingConfig& scaling);

}  // namespace scatterlm::nn

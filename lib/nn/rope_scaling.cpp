#include "lib/nn/rope_scaling.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lib/ops/rope.h"

namespace scatterlm::nn {
namespace {

/// For each pair the share of the scaled frequency: 0 keeps it, 1 divides it by the factor.
at::Tensor llama3_share(const at::Tensor& frequencies, const RopeScalingConfig& scaling) {
  const auto turns = frequencies * (static_cast<double>(scaling.original_max_position_embeddings) / (2 * std::numbers::pi));
  return ((scaling.high_freq_factor - turns) / (scaling.high_freq_factor - scaling.low_freq_factor)).clamp(0, 1);
}

at::Tensor yarn_share(int64_t head_dim, double theta, const RopeScalingConfig& scaling) {
  const auto width = static_cast<double>(head_dim);
  const auto pair_of = [&](double turns) {  // that makes so many turns in the original length
    const auto length = static_cast<double>(scaling.original_max_position_embeddings);
    return width * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  const double low = std::max(std::floor(pair_of(scaling.beta_fast)), 0.0);
  double high = std::min(std::ceil(pair_of(scaling.beta_slow)), width - 1);
  if (low == high) high += 0.001;  // a step
  return ((at::arange(head_dim / 2, at::kDouble) - low) / (high - low)).clamp(0, 1);
}

}  // namespace

ScaledRope scaled_rope(int64_t head_dim, double theta, const RopeScalingConfig& scaling) {
  const auto frequencies = ops::rope_frequencies(head_dim, theta);
  const auto mixed = [&](const at::Tensor& share) { return frequencies * (share / scaling.factor + (1 - share)); };
  switch (scaling.type) {
    case RopeScaling::kNone: break;
    case RopeScaling::kLinear: return {frequencies / scaling.factor, 1};
    case RopeScaling::kLlama3: return {mixed(llama3_share(frequencies, scaling)), 1};
    case RopeScaling::kYarn:
      return {mixed(yarn_share(head_dim, theta, scaling)),
              scaling.attention_factor.value_or(0.1 * std::log(scaling.factor) + 1)};
  }
  return {frequencies, 1};
}

}  // namespace scatterlm::nn

// Layers as a model has them, for what they cost the host.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace scatterlm::bench {

/// As many follow one another where the host's time is measured.
constexpr int64_t kNumLayers = 16;

/// A leaf on the memory of x.
at::Tensor leaf(const at::Tensor& x);

/// A leaf on the memory of `weight` as a trainer has it: its gradient is added to `buffer`, which is fp32.
at::Tensor parameter(const at::Tensor& weight, const at::Tensor& buffer);

/// Zeros in fp32.
at::Tensor gradient_buffer(const at::Tensor& weight);

/// kNumLayers times `in`, each with parameters of its own in place of `weights`. All are on the same memory, and so are their
/// gradients, which nobody reads: only the host's work is that of a model.
template <class Inputs>
std::vector<Inputs> layers_of(const Inputs& in, const std::vector<at::Tensor Inputs::*>& weights) {
  std::vector<Inputs> layers(kNumLayers, in);
  for (const auto weight : weights) {
    const auto buffer = gradient_buffer(in.*weight);
    for (auto& layer : layers) layer.*weight = parameter(in.*weight, buffer);
  }
  return layers;
}

}  // namespace scatterlm::bench

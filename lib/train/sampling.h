// Text from a trained model.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "lib/nn/model.h"

namespace scatterlm {

struct SamplingOptions {
  double temperature = 1;  ///< of the softmax; 0 = greedy decoding
  int64_t top_k = 0;       ///< sample from the k most likely tokens; 0 = all
  double top_p = 1;        ///< then from the most likely of those, until their probabilities sum to p (nucleus sampling)
  int64_t seed = 0;
};

/// One token from logits [V] fp32 on the CPU. `uniform` in [0, 1) picks it: the same number, the same token.
int64_t sample_token(const at::Tensor& logits_V, const SamplingOptions& options, double uniform);

/// Continues `prompt` (at least one token) by up to max_tokens tokens with cached keys and values; each new one goes to `emit`,
/// which returns false to stop. Token i depends on the seed and the tokens before it alone.
void generate(nn::Model& model, const std::vector<int64_t>& prompt, int64_t max_tokens, const SamplingOptions& options,
              const std::function<bool(int64_t)>& emit);

}  // namespace scatterlm

// How many parameters a model has and how much arithmetic one token costs, from its configuration alone.
#pragma once
#include <cstdint>

#include "lib/config/config.h"

namespace scatterlm::nn {

struct ModelSize {
  int64_t total = 0;   ///< all trained values
  int64_t active = 0;  ///< without the experts that a token is not sent to; the embedding counts in full
  /// Active values that multiply activations: neither norms nor biases, and the embedding only as output head.
  int64_t active_matmul = 0;
};

/// Adds up parameters. Where 64 bits do not hold a sum, it stays at their largest number. A matrix multiplies activations; a
/// vector (norm, bias) does not.
class ParameterCount {
 public:
  void matrix(int64_t elements) { matrices(1, 1, elements); }
  void vector(int64_t elements) { vectors(1, 1, elements); }
  /// One of each expert; a token uses `active_copies` of them.
  void matrices(int64_t copies, int64_t active_copies, int64_t elements);
  void vectors(int64_t copies, int64_t active_copies, int64_t elements);

  const ModelSize& size() const { return size_; }

 private:
  ModelSize size_;
};

ModelSize model_size(const ModelConfig& config);

/// Model FLOPs of one trained token, forward and backward (Chowdhery et al., PaLM, arXiv 2204.02311, appendix B):
///
///     6 * active_matmul + sum over layers of 12 * heads * head_dim * positions seen
///
/// A multiply-add is two operations and the backward pass costs two forward passes. The last term is QK^T and AV; because
/// of the causal mask a query sees half of the sequence on average (the paper counts all of it), and with a window w below the
/// length S of the sequence, w - w^2 / (2 S) positions. Recomputation does not count.
double flops_per_token(const ModelConfig& config, int64_t sequence_length);

}  // namespace scatterlm::nn

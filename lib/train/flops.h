// How large a model is and how much arithmetic one token costs.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lib/config/config.h"

namespace scatterlm {

struct ModelSize {
  int64_t total = 0;   ///< all trained values
  int64_t active = 0;  ///< without the experts that a token is not sent to; the embedding counts in full
  /// Active values that multiply activations: neither norms nor biases, and the embedding only as output head.
  int64_t active_matmul = 0;
};

ModelSize model_size(const ModelConfig& config);

/// Model FLOPs of one trained token, forward and backward (Chowdhery et al., PaLM, arXiv 2204.02311, appendix B):
///
///     6 * active_matmul + sum over layers of 12 * heads * head_dim * positions seen
///
/// A multiply-add is two operations and the backward pass costs two forward passes. The last term is QK^T and AV; because
/// of the causal mask a query sees half of the sequence on average (the paper counts all of it), and with a window w below the
/// length S of the sequence, w - w^2 / (2 S) positions.
/// Recomputation does not count.
double flops_per_token(const ModelConfig& config, int64_t sequence_length);

/// "6.92B parameters, 1.28B active, 8.2B FLOPs a token"
std::string describe_model(const Config& config);

struct PeakFlops {
  double flops;            ///< per second
  std::string_view basis;  ///< what the number is, for the log
};

/// Dense bfloat16 peak of a GPU by the name that its driver gives; none where this file does not know it.
std::optional<PeakFlops> peak_bfloat16(std::string_view gpu_name);

}  // namespace scatterlm

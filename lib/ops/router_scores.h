// The part of the router behind the logits, on the CPU: one pass over the tokens forward, one backward.
#pragma once
#include "lib/ops/router.h"

namespace scatterlm::ops {

/// Added to a sum of sigmoid scores before division by it.
constexpr double kSigmoidEps = 1e-20;

/// logits_TE fp32 or fp64, contiguous.
RouterOutput router_scores_cpu(const at::Tensor& logits_TE, const std::optional<at::Tensor>& bias_E,
                               const RouterOptions& options);

}  // namespace scatterlm::ops

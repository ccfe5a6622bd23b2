// The part of the router behind the logits: one pass over the tokens forward, one backward.
#pragma once
#include "lib/ops/router.h"

namespace scatterlm::ops {

/// Added to a sum of sigmoid scores before division by it.
constexpr double kSigmoidEps = 1e-20;

/// CPU tensors, and fp32 on a GPU with our kernels (up to 1024 experts, 64 per token).
bool router_scores_takes(const at::Tensor& logits_TE, const RouterOptions& options);

/// logits_TE fp32 or fp64, contiguous.
RouterOutput router_scores(const at::Tensor& logits_TE, const std::optional<at::Tensor>& bias_E, const RouterOptions& options);

}  // namespace scatterlm::ops

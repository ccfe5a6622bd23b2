// The part of the router behind the logits: one pass over the tokens forward, one backward.
#pragma once
#include "lib/ops/router.h"

namespace scatterlm::ops {

/// Added to a sum of sigmoid scores before division by it.
constexpr double kSigmoidEps = 1e-20;

/// Computes scores, selection, gates and the sums for the losses from logits_TE [T, E], float32 or float64 and contiguous; see
/// router() for the rules. Differentiable in the logits. The options must fit the shapes, which router() checks.
RouterOutput router_scores(const at::Tensor& logits_TE, const std::optional<at::Tensor>& bias_E, const RouterOptions& options);

// Backends, of which router_scores.cpp picks one; all are differentiable.
namespace ref {  // LibTorch's own operations, on any device
RouterOutput router_scores(const at::Tensor& logits_TE, const std::optional<at::Tensor>& bias_E, const RouterOptions& options);
}
namespace cpu {
RouterOutput router_scores(const at::Tensor& logits_TE, const std::optional<at::Tensor>& bias_E, const RouterOptions& options);
}
namespace cuda {  // nothing where no kernel takes these tensors: the kernels are for float32, 1024 experts, 64 per token
std::optional<RouterOutput> router_scores(const at::Tensor& logits_TE, const std::optional<at::Tensor>& bias_E,
                                          const RouterOptions& options);
}

}  // namespace scatterlm::ops

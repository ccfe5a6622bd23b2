// How the kernels of the router are called: what they take and their arguments.
#pragma once
#include "kernels/router_scores.h"
#include "lib/ops/device.h"
#include "lib/ops/router.h"

namespace scatterlm::ops {

inline bool router_kernels_take(const at::Tensor& logits_TE, const RouterOptions& options) {
  return has_kernels(logits_TE) && logits_TE.scalar_type() == at::kFloat && logits_TE.size(1) <= kernels::kMaxRouterExperts &&
         options.num_experts_per_tok <= kernels::kMaxRouterTopK;
}

inline kernels::RouterScoresArgs kernel_router_args(const at::Tensor& logits_TE, const RouterOptions& options) {
  const bool sigmoid = options.score == RouterScore::kSigmoid;
  return {.logits_TE = logits_TE.const_data_ptr<float>(),
          .num_tokens = logits_TE.size(0),
          .num_experts = logits_TE.size(1),
          .top_k = options.num_experts_per_tok,
          .sigmoid = sigmoid,
          .softmax_of_chosen = !sigmoid && (options.topk_before_softmax || options.norm_topk_prob),
          .normalize = options.norm_topk_prob,
          .scale = static_cast<float>(options.routed_scaling_factor)};
}

/// Fills the rest of out from its logits_TE, gates_TK and ids_TK; also the routing, if it is not nullptr.
void run_router_scores_kernel(const std::optional<at::Tensor>& bias_E, const RouterOptions& options,
                              const kernels::RoutingArgs* routing, RouterOutput& out);

}  // namespace scatterlm::ops

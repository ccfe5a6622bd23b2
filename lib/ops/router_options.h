// What the autograd functions behind a router's logits share: its options from forward to backward, and as kernels see them.
#pragma once
#include <torch/csrc/autograd/custom_function.h>

#include "lib/ops/router.h"

#ifdef SCATTERLM_KERNELS
#include "kernels/router_scores.h"
#endif

namespace scatterlm::ops {

inline void save_options(torch::autograd::AutogradContext* ctx, const RouterOptions& options) {
  auto& data = ctx->saved_data;
  data["top_k"] = options.num_experts_per_tok;
  data["score"] = static_cast<int64_t>(options.score);
  data["before"] = options.topk_before_softmax;
  data["norm"] = options.norm_topk_prob;
  data["factor"] = options.routed_scaling_factor;
}

inline RouterOptions saved_options(const torch::autograd::AutogradContext* ctx) {
  const auto& data = ctx->saved_data;
  return {.num_experts_per_tok = data.at("top_k").toInt(),
          .score = static_cast<RouterScore>(data.at("score").toInt()),
          .topk_before_softmax = data.at("before").toBool(),
          .norm_topk_prob = data.at("norm").toBool(),
          .routed_scaling_factor = data.at("factor").toDouble()};
}

#ifdef SCATTERLM_KERNELS
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
#endif

}  // namespace scatterlm::ops

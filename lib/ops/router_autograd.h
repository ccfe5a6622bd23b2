// What the autograd functions behind a router's logits share, whatever computes them.
#pragma once
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lib/ops/router.h"

namespace scatterlm::ops {

/// Keeps the options for backward.
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

/// Backend has `static void fwd(logits_TE, bias_E, options, RouterOutput& out)`, which fills gates_TK and ids_TK and sets the
/// sums, and `static at::Tensor bwd(logits_TE, ids_TK, options, dgates_TK, dprob_sum_E, dlse_sq_sum)`, the logits' gradient.
template <class Backend>
class RouterScoresFunction : public torch::autograd::Function<RouterScoresFunction<Backend>> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& logits_TE,
                                                const std::optional<at::Tensor>& bias_E, const RouterOptions& options) {
    const std::vector<int64_t> shape_TK = {logits_TE.size(0), options.num_experts_per_tok};
    RouterOutput out;
    out.gates_TK = at::empty(shape_TK, logits_TE.options());
    out.ids_TK = at::empty(shape_TK, logits_TE.options().dtype(at::kInt));
    Backend::fwd(logits_TE, bias_E, options, out);
    save_options(ctx, options);
    ctx->save_for_backward({logits_TE, out.ids_TK});
    ctx->mark_non_differentiable({out.ids_TK, out.counts_E});
    return {out.gates_TK, out.ids_TK, out.counts_E, out.prob_sum_E, out.lse_sq_sum};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    return {
        Backend::bwd(saved[0], saved[1], saved_options(ctx), grads[0].contiguous(), grads[3].contiguous(), grads[4]), {}, {}};
  }
};

template <class Backend>
RouterOutput run_router_scores(const at::Tensor& logits_TE, const std::optional<at::Tensor>& bias_E,
                               const RouterOptions& options) {
  const auto out = RouterScoresFunction<Backend>::apply(logits_TE, bias_E, options);
  return {.logits_TE = logits_TE,
          .gates_TK = out[0],
          .ids_TK = out[1],
          .counts_E = out[2],
          .prob_sum_E = out[3],
          .lse_sq_sum = out[4]};
}

}  // namespace scatterlm::ops

// Scores, selection and losses of a router. Shapes: T tokens, E experts, K chosen per token, D model width.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "lib/config/enums.h"
#include "lib/ops/routing.h"

namespace scatterlm::ops {

struct RouterOptions {
  int64_t num_experts_per_tok = 1;  ///< K
  RouterScore score = RouterScore::kSoftmax;
  bool topk_before_softmax = false;  ///< form (a): choose on logits, softmax over the chosen
  bool norm_topk_prob = true;        ///< form (b'): gates sum to 1 (sigmoid: q / (sum q + 1e-20))
  double routed_scaling_factor = 1;
};

struct RouterOutput {
  at::Tensor logits_TE;                 ///< fp32 (fp64 of fp64), differentiable
  at::Tensor gates_TK;                  ///< likewise
  at::Tensor ids_TK;                    ///< int32, descending by selection score, NaN above infinity, ties to the lower index
  at::Tensor counts_E;                  ///< int32, how many tokens chose e
  at::Tensor prob_sum_E;                ///< fp32, differentiable: sum over t of P[t,e] (softmax; sigmoid: q / sum q)
  at::Tensor lse_sq_sum;                ///< fp32 scalar, differentiable: sum over t of logsumexp(z_t)^2
  std::optional<Routing> routing = {};  ///< make_routing(ids_TK), where it was made by the same kernel
  at::Tensor x_TD = {};                 ///< x, to be read by what else reads it: see linear_and_rows (linear.h)
};

/// Routes tokens to experts. x_TD [T, D] and weight_ED [E, D] have one dtype; the logits z = x weight^T are accumulated and
/// kept in float32 (float64 for float64). Each token gets the K experts of the highest score + bias_E [E] (bias-balanced
/// selection: Wang et al., arXiv 2408.15664); gates come from the scores alone. Without a bias the logits are compared: the
/// same order as their scores, but free of ties by rounding. NaN logits are chosen first and give valid ids, so they show in
/// the gates. Differentiable in x and weight. Sources of the losses: Fedus et al., arXiv 2101.03961 (load balancing); Zoph et
/// al., arXiv 2202.08906 (z-loss). Throws "[router] ..." for wrong shapes or options.
RouterOutput router(const at::Tensor& x_TD, const at::Tensor& weight_ED, const std::optional<at::Tensor>& bias_E,
                    const RouterOptions& options);

namespace cuda {  // without a gradient, for contiguous bf16 of up to 8 tokens; nothing where no kernel takes these tensors
std::optional<RouterOutput> router(const at::Tensor& x_TD, const at::Tensor& weight_ED, const std::optional<at::Tensor>& bias_E,
                                   const RouterOptions& options);
}

/// Returns sum_e load_E[e] * prob_sum_E[e] / num_tokens: this micro-batch's share of the load balancing loss of the Switch
/// Transformer, which is 1 in total at perfect balance. load_E[e] = E c_e / (N K) is 1 for an expert that has its share of the
/// N tokens; the gradient treats it as a constant. The experts of several routers one after another give the sum of their
/// losses. Throws "[load_balance_loss] ..." unless both have the same shape.
at::Tensor load_balance_loss(const at::Tensor& prob_sum_E, const at::Tensor& load_E, double num_tokens);

}  // namespace scatterlm::ops

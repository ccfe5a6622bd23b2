// Scores, selection and losses of a router. Shapes: T tokens, E experts, K chosen per token, D model width.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "lib/config/enums.h"

namespace scatterlm::ops {

struct RouterOptions {
  int64_t num_experts_per_tok = 1;  ///< K
  RouterScore score = RouterScore::kSoftmax;
  bool topk_before_softmax = false;  ///< form (a): choose on logits, softmax over the chosen
  bool norm_topk_prob = true;        ///< form (b'): gates sum to 1 (sigmoid: q / (sum q + 1e-20))
  double routed_scaling_factor = 1;
};

struct RouterOutput {
  at::Tensor logits_TE;   ///< fp32 (fp64 of fp64), differentiable
  at::Tensor gates_TK;    ///< likewise
  at::Tensor ids_TK;      ///< int32, descending by selection score, NaN above infinity, ties to the lower index
  at::Tensor counts_E;    ///< int32, how many tokens chose e
  at::Tensor prob_sum_E;  ///< fp32, differentiable: sum over t of P[t,e] (softmax; sigmoid: q / sum q)
  at::Tensor lse_sq_sum;  ///< fp32 scalar, differentiable: sum over t of logsumexp(z_t)^2
};

/// logits z = x_TD weight_ED^T with fp32 accumulation, kept fp32; selection in fp32 by score + bias_E (bias-balanced selection,
/// 2408.15664), gates from the score alone. Without a bias the logits themselves are compared: same order as their scores, but
/// free of ties by rounding. NaN logits give valid ids and are chosen first, so they show in the gates. Fedus et al.,
/// 2101.03961 (losses); Zoph et al., 2202.08906 (z-loss).
RouterOutput router(const at::Tensor& x_TD, const at::Tensor& weight_ED, const std::optional<at::Tensor>& bias_E,
                    const RouterOptions& options);

/// sum_e load_E[e] * prob_sum_E[e] / num_tokens: this micro-batch's share of the Switch auxiliary loss, 1 in total at perfect
/// balance. load_E = E c_e / (N K), 1 for an expert that has its share, is a constant for the gradient. Experts of several
/// routers in a row give the sum of their losses.
at::Tensor load_balance_loss(const at::Tensor& prob_sum_E, const at::Tensor& load_E, double num_tokens);

namespace ref {
RouterOutput router(const at::Tensor& x_TD, const at::Tensor& weight_ED, const std::optional<at::Tensor>& bias_E,
                    const RouterOptions& options);
}

}  // namespace scatterlm::ops

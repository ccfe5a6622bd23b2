// The part of a router behind its logits: scores, selection, gates, and the sums that its losses need, in one pass over the
// tokens; backward likewise. Formulas: lib/ops/router.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/routing.h"

namespace scatterlm::kernels {

constexpr int kMaxRouterExperts = 1024, kMaxRouterTopK = 64;

struct RouterScoresArgs {
  const float* logits_TE;  ///< [T, E]
  int64_t num_tokens;      ///< T
  int64_t num_experts;     ///< E, at most kMaxRouterExperts
  int64_t top_k;           ///< K, at most kMaxRouterTopK and E
  bool sigmoid;            ///< scores q = sigmoid(z); otherwise P = softmax(z)
  bool softmax_of_chosen;  ///< gates = softmax over the chosen logits
  bool normalize;          ///< sigmoid: gates = q / (sum of the chosen q + 1e-20)
  float scale;             ///< multiplies the gates
};

struct RouterScoresFwd {
  const float* bias_E;                   ///< added to what is selected by; nullptr: selection by the logits
  bool select_by_logits;                 ///< with a bias: by logit + bias, otherwise by score + bias
  float* gates_TK;                       ///< [T, K]
  int32_t* ids_TK;                       ///< [T, K] descending, NaN above infinity, ties to the lower index
  int32_t* counts_E;                     ///< [E]
  float* prob_sum_E;                     ///< [E] sums over t of P, or of q / (sum q + 1e-20)
  float* lse_sq_sum;                     ///< [1] sum over t of logsumexp(z)^2
  void* workspace;                       ///< router_scores_workspace_bytes()
  const RoutingArgs* routing = nullptr;  ///< where router_scores_routes(): of ids_TK, made by the same launch; nullptr: none
};
int64_t router_scores_workspace_bytes(const RouterScoresArgs& args);
/// Whether the kernel can also make the routing: of up to 8 tokens with 128 slots together.
bool router_scores_routes(const RouterScoresArgs& args);

/// Two launches: tokens, then sums of the blocks in their order; one for up to 8 tokens. The same bits on every run and GPU.
void router_scores_fwd(const RouterScoresArgs& args, const RouterScoresFwd& outputs, cudaStream_t stream);

struct RouterScoresBwd {
  const int32_t* ids_TK;
  const float* dgates_TK;    ///< [T, K]
  const float* dprob_sum_E;  ///< [E]
  const float* dlse_sq_sum;  ///< [1]
  float* dlogits_TE;         ///< [T, E]
};
void router_scores_bwd(const RouterScoresArgs& args, const RouterScoresBwd& gradients, cudaStream_t stream);

}  // namespace scatterlm::kernels

// Token rounding on the device: which pairs of token and expert stay, and the routing of them. Rules: lib/ops/token_rounding.h;
// Guo et al., "SonicMoE", arXiv 2512.14080, algorithm 4.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/router_scores.h"

namespace scatterlm::kernels {

/// Slots ascend in (token, expert), rows in (expert, token). Of the lists [R] the first offsets[E] entries are used; behind
/// them sorted and inverse are the identity, the others 0.
struct TokenRoundingArgs {
  RouterScoresArgs router;    ///< as for router_scores_fwd
  const float* gates_TK;      ///< its results
  const int32_t* ids_TK;      ///< likewise
  const int32_t* counts_E;    ///< likewise
  int64_t num_slots;          ///< R, at least as many as there may be
  float* gates_R;             ///< [R] gate of each slot
  int32_t* experts_R;         ///< [R] expert of each slot
  int32_t* inverse_R;         ///< [R] row of each slot
  int32_t* sorted_R;          ///< [R] slot of each row
  int32_t* tokens_R;          ///< [R] token of each row
  int32_t* token_offsets_T1;  ///< [T+1] first slot of each token
  int32_t* offsets_E1;        ///< [E+1] first row of each expert
  int32_t* tiles_E3;          ///< [E+3] see grouped_gemm.h
  void* workspace;            ///< token_rounding_workspace_bytes(), aligned to 16
};
/// The workspace begins with the keys, uint32 [E, stride]: the higher, the sooner a pair is selected.
int64_t token_rounding_key_stride(int64_t num_tokens);
int64_t token_rounding_workspace_bytes(const TokenRoundingArgs& args);

/// Three launches: a key for every pair, selection of each expert's tokens, lists. The same bits always.
void token_rounding_fwd(const TokenRoundingArgs& args, cudaStream_t stream);

struct TokenRoundingBwdArgs {
  RouterScoresArgs router;
  const int32_t* ids_TK;
  const int32_t* experts_R;
  const int32_t* token_offsets_T1;
  const float* dgates_R;  ///< [R]; only those of slots are read
  float* dgates_TK;       ///< gradient of the router's gates: 0 for a dropped pair
  float* dlogits_TE;      ///< gradient through the scores of filled pairs
};
void token_rounding_bwd(const TokenRoundingBwdArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels

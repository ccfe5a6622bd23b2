// The logits of a router for few tokens, as when a model generates.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace scatterlm::kernels {

/// Most tokens of one call.
constexpr int kRouterLogitsTokens = 8;

/// logits = x weight^T, accumulated and stored in fp32.
struct RouterLogitsArgs {
  const void* x_TD;       ///< bf16 [T, D]
  const void* weight_ED;  ///< bf16 [E, D]
  float* logits_TE;       ///< [T, E]
  int64_t num_tokens;     ///< T, at most kRouterLogitsTokens
  int64_t num_experts;    ///< E
  int64_t width;          ///< D, a multiple of 8
};
void router_logits(const RouterLogitsArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels

// Sums over the experts of a token. Deterministic: slots are added in their order, in fp32.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace scatterlm::kernels {

/// dgates[i] = sum over p of partial[inverse[i], p], + dots[inverse[i]], for every slot i; partial fp32 [R, num_partials].
struct SumDgatesArgs {
  const float* partial;
  const int32_t* inverse_R;
  float* dgates;
  int64_t num_rows;
  int64_t num_partials;
  const float* dots_R = nullptr;  ///< fp32 [R] (kernels/expert_bias.h); nullptr: none
};
void sum_dgates(const SumDgatesArgs& args, cudaStream_t stream);

/// out[t] = sum over the slots i of t, tK .. tK + K - 1 or those of token_offsets, of gates[i] y[inverse[i]].
struct GatherSumArgs {
  const void* y;                              ///< bf16 [R, n] in expert order
  const int32_t* inverse_R;                   ///< row of each slot
  const float* gates;                         ///< fp32, one per slot; nullptr: all 1
  void* out;                                  ///< bf16 [T, n]
  int64_t num_tokens;                         ///< T
  int64_t top_k;                              ///< K
  int64_t n;                                  ///< a multiple of 8; y and out aligned to 16 bytes
  const int32_t* token_offsets_T1 = nullptr;  ///< [T+1] first slot of each token; nullptr: K slots each
};
void gather_sum(const GatherSumArgs& args, cudaStream_t stream);

/// gather_sum, and sum_dgates of the same slots, in one launch.
void gather_sum_with_dgates(const GatherSumArgs& args, const SumDgatesArgs& dgates, cudaStream_t stream);

}  // namespace scatterlm::kernels

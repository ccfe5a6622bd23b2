// Routing metadata on the device: a stable counting sort of the slots by expert, without reading anything back.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace scatterlm::kernels {

constexpr int64_t kMaxRoutingExperts = 4096;
/// Counters of each expert, int32, in the shared memory of a block.
constexpr int64_t kRoutingCounters = 9;

/// Most experts on a GPU whose blocks can have so much shared memory: 2816 of 99 KB (compute capability 8.6, 8.9 and 12.0).
constexpr int64_t max_routing_experts(int64_t shared_bytes) {
  const int64_t most = shared_bytes / (4 * kRoutingCounters);
  return most < kMaxRoutingExperts ? most : kMaxRoutingExperts;
}

/// Slot i = t K + j of token t. All int32. Rows of one expert ascend in slot.
struct RoutingArgs {
  const int32_t* ids_R;  ///< [R] expert of each slot, in 0..E-1 (not checked)
  int64_t num_rows;      ///< R = T K, below 2^31
  int64_t top_k;         ///< K
  int64_t num_experts;   ///< E, at most max_routing_experts()
  int32_t* sorted_R;     ///< [R] slot of row m
  int32_t* tokens_R;     ///< [R] token of row m: sorted / K
  int32_t* inverse_R;    ///< [R] row of slot i
  int32_t* offsets_E1;   ///< [E+1] first row of each expert, then R
  int32_t* tiles_E3;     ///< [E+3] see grouped_gemm.h
  void* workspace;       ///< routing_workspace_bytes()
};

int64_t routing_workspace_bytes(int64_t num_rows, int64_t num_experts);

/// Two launches, counts of pieces of the slots and then the place of each slot; one, without counts beforehand, up to 1024
/// slots. No atomic order enters: the same bits always. Throws KernelError if there are more experts than this GPU can route
/// to.
void make_routing(const RoutingArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels

// Routing metadata: where each (token, slot) pair stands in expert order. T tokens, K slots, R = T*K rows, E experts.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

struct CUstream_st;

namespace scatterlm::ops {

/// Slot index i = t*K + j. All int32, on the device of the ids.
struct Routing {
  int64_t num_tokens = 0;   ///< T
  int64_t top_k = 0;        ///< K
  int64_t num_experts = 0;  ///< E
  at::Tensor sorted_R;      ///< sigma: slot of expert-order row m; stable, so rows of one expert ascend in slot
  at::Tensor inverse_R;     ///< row of slot i; inverse permutation of sorted_R
  at::Tensor offsets_E1;    ///< [E+1]: rows of expert e are offsets[e] .. offsets[e+1]-1
  at::Tensor tokens_R;      ///< token of row m
  at::Tensor tiles_E3;      ///< on a GPU only, for its kernels: see kernels/grouped_gemm.h
  /// The stream (a cudaStream_t) whose products use the tile counters in tiles_E3; those on other streams get counters of their
  /// own, see tiles_for_stream() in routing_cuda.h.
  CUstream_st* stream = nullptr;
  /// Undefined: K slots for every token. Otherwise slots of token t are token_offsets[t] .. token_offsets[t+1]-1, and R is only
  /// a bound of their number, see token_rounding.h.
  at::Tensor token_offsets_T1;
};

/// Sorts the slots by expert, keeping their order within one. ids_TK [T, K] int32 names the expert of each slot, 0..E-1.
/// Throws "[routing] ..." for other shapes or dtypes, num_experts < 1 and, on the CPU, an id out of range; on a GPU ids are
/// not checked. Never waits for a GPU.
Routing make_routing(const at::Tensor& ids_TK, int64_t num_experts);

// Backends, of which routing.cpp picks one. ids_TK is contiguous.
namespace ref {  // LibTorch's own operations, on any device and without waiting for it; ids are not checked
Routing make_routing(const at::Tensor& ids_TK, int64_t num_experts);
}
namespace cpu {
Routing make_routing(const at::Tensor& ids_TK, int64_t num_experts);
}
namespace cuda {  // nothing where no kernel takes these tensors
std::optional<Routing> make_routing(const at::Tensor& ids_TK, int64_t num_experts);
}

}  // namespace scatterlm::ops

// Routing metadata: where each (token, slot) pair stands in expert order. T tokens, K slots, R = T*K rows, E experts.
#pragma once
#include <ATen/core/Tensor.h>

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
  /// Undefined: K slots for every token. Otherwise slots of token t are token_offsets[t] .. token_offsets[t+1]-1, and R is only
  /// a bound of their number, see token_rounding.h.
  at::Tensor token_offsets_T1;
};

/// ids_TK int32, each in 0..E-1.
Routing make_routing(const at::Tensor& ids_TK, int64_t num_experts);

namespace ref {
/// The same in plain tensor operations on any device, without waiting for it; ids are not checked.
Routing make_routing(const at::Tensor& ids_TK, int64_t num_experts);
}  // namespace ref

}  // namespace scatterlm::ops

// Backward of a gated sum of rows, o[t] = sum over the slots of s W x, from da' = dO W of each row.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace scatterlm::kernels {

/// No two of da, x, dx, x_gated overlap. For every row m in expert order, with slot i = sorted[m], gate s = gates[i] and the
/// row x of it:
///   dgates[i] = <da'[m], x>      dx = s da'[m]      x_gated[m] = s x
struct GateBwdArgs {
  const void* da;            ///< bf16 [R, n] in expert order
  const void* x;             ///< bf16 [rows, n]
  const int32_t* x_rows_R;   ///< row of x that belongs to m; nullptr: m
  const int32_t* sorted_R;   ///< slot of m
  const float* gates;        ///< fp32, one per slot
  void* dx;                  ///< bf16 [R, n]
  const int32_t* dx_rows_R;  ///< row of dx for m; nullptr: m
  void* x_gated;             ///< bf16 [R, n] in expert order
  float* dgates;             ///< fp32, one per slot
  int64_t num_rows;          ///< R
  int64_t n;                 ///< a multiple of 8; rows aligned to 16 bytes
};
void gate_bwd(const GateBwdArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels

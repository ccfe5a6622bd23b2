// Grouped matrix products: rows in expert order times the matrix of their expert, bf16 inputs, fp32 accumulation. E experts, R
// rows, T tokens, D model width, F expert width.
//
// Two families of kernels compute the same: one for Hopper (TMA, wgmma), one for every GPU from Ampere on (mma.sync). The
// compute capability in the arguments decides; the second also runs on a Hopper GPU if told another capability than 9.0.
//
// Rows of expert e are offsets[e] .. offsets[e+1]-1. Tiles of 128 rows never span experts: a tile's rows past the end of its
// expert are computed from zeros or from the next expert's rows and not stored. So the device alone knows how many tiles there
// are; the host launches one block per multiprocessor and each walks the tiles (grouped_gemm/tile_scheduler.h).
//
// At most 32 rows, as when a model generates, need none of this but the weights of their experts, read once at full speed: both
// forward functions then take a kernel of their own on every GPU (grouped_gemm/small_m.cu). It also serves dense products: one
// expert that has all rows.
//
// A bias is the business of the weight's policy (WeightAsStored::add_bias), which adds it to the fp32 sums before the epilogue
// rounds them. A scale of rows is none of the products': gates of a sum of rows are applied beside memory traffic that is there
// anyway, by gather_sum.cu forward, gate_bwd.cu and the epilogue of grouped_gemm_activation_bwd backward.
//
// Widths are multiples of 8 and pointers of 16 bytes, the unit of copies; any E, R, empty experts included.
// Every function enqueues one kernel and throws KernelError if it cannot. Kernels over the same ExpertRows must not run at
// once: they share counters.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/activation.h"
#include "kernels/device/ceil_div.h"
#include "kernels/device/data_type.h"
#include "kernels/device/gradient_update.h"

namespace scatterlm::kernels {

/// Rows of a tile of grouped GEMMs over rows, the unit of tiles_E3.
constexpr int kTileRows = 128;

/// Most rows for the kernel for few rows. With so many, eight experts have four rows each: what they reread of `a` is a quarter
/// of the weights, which L2 still delivers. Beyond, tiles are enough blocks for all multiprocessors.
constexpr int kSmallM = 32;

/// The compute capability 9.0.
constexpr int kHopper = 90;

/// Where the rows of each expert are; made by make_routing (kernels/routing.h), on the device.
struct ExpertRows {
  const int32_t* offsets_E1;  ///< [E+1] first row of each expert, then R; nullptr: one expert has all, at most kSmallM
  int32_t* tiles_E3;  ///< [E+1] exclusive sums of ceil(rows of e / 128); [2] counters of the tiles begun, see tile_scheduler.h
  int64_t num_experts;  ///< E
  int64_t num_rows;     ///< R

  /// Number of tiles of kTileRows rows that there can be.
  int64_t most_tiles() const { return ceil_div(num_rows, kTileRows) + num_experts; }
  SCATTERLM_HOST_DEVICE int32_t* tile_counters() const { return tiles_E3 + num_experts + 1; }
};

/// The product that the functions below share: C[m, :] = A[row(m), :] B[e(m)] for every row m.
struct GroupedProduct {
  ExpertRows experts;
  const void* a;            ///< bf16 [R, k]; with a_rows [rows, k]
  const int32_t* a_rows_R;  ///< [R] row of a that is row m of the product; nullptr: a is in expert order
  const void* b;            ///< bf16, see the functions
  int64_t n;                ///< columns of C
  int64_t k;
  int num_sms;             ///< multiprocessors to use
  int compute_capability;  ///< kHopper, or any other from 80 on
};

/// c = a b[e]^T + bias[e], with b [E, n, k].
struct GroupedGemmFwdArgs {
  GroupedProduct product;
  void* c;                            ///< bf16 [R, n]; with c_rows [rows, n], of which the rows not named stay as they are
  const int32_t* c_rows_R = nullptr;  ///< [R] row of c that row m becomes; nullptr: c is in expert order
  const void* bias = nullptr;         ///< bf16 [E, n], added before c is rounded; nullptr: none
  bool small_m_kernel = true;         ///< false: few rows take the kernels of many too
};
void grouped_gemm_fwd(const GroupedGemmFwdArgs& args, cudaStream_t stream);

/// c = a b[e], with b [E, k, n].
struct GroupedGemmDgradArgs {
  GroupedProduct product;
  void* c;                            ///< as of GroupedGemmFwdArgs
  const int32_t* c_rows_R = nullptr;  ///< likewise
};
void grouped_gemm_dgrad(const GroupedGemmDgradArgs& args, cudaStream_t stream);

/// The up projection of an MoE MLP with its activation: b = W1 [E, 2F, D] (gate rows first; [E, F, D] if not gated), n = F, k =
/// D, rows of a named by a_rows. h = a b[e]^T + bias[e], and act = activation of the rounded h.
struct ActivationFwdArgs {
  GroupedProduct product;
  Activation activation;
  void* h;                     ///< bf16 [R, 2F or F]
  void* act;                   ///< bf16 [R, F]
  const void* bias = nullptr;  ///< bf16 [E, 2F or F], added before h is rounded; nullptr: none
  bool small_m_kernel = true;  ///< false: few rows take the kernels of many too
};
void grouped_gemm_activation_fwd(const ActivationFwdArgs& args, cudaStream_t stream);

/// Backward of o[t] = sum of gates W2 activation(h), with a = dO and b = W2 [E, D, F], n = F, k = D, rows of a named by a_rows
/// (Guo et al., "SonicMoE", arXiv 2512.14080, section 3): with da' = dO W2 and the gate s of the row
///   h <- gradient of h for da = s da'          act_gated = s activation(h)          dgates = sum over F of da' activation(h)
struct ActivationBwdArgs {
  GroupedProduct product;
  Activation activation;
  void* h;                  ///< bf16 [R, 2F or F]: in the pre-activation, out its gradient
  void* act_gated;          ///< bf16 [R, F]
  const float* gates;       ///< fp32, one per slot
  const int32_t* sorted_R;  ///< [R] slot of row m
  float* dgates_partial;    ///< fp32 [R, dgates_partials(F, ...)]: sums over blocks of columns, in row order
};
void grouped_gemm_activation_bwd(const ActivationBwdArgs& args, cudaStream_t stream);
/// Columns of dgates_partial: ceil(F / 256) on Hopper, ceil(F / 128) elsewhere.
int64_t dgates_partials(int64_t expert_width, int compute_capability);

/// dW[e] = sum over the rows m of e of A[m]^T B[m].
struct WgradArgs {
  ExpertRows experts;
  const void* a;            ///< bf16 [R, m], or [rows, m] with a_rows
  const int32_t* a_rows_R;  ///< nullptr: a is in expert order
  const void* b;            ///< bf16 [R, n], or [rows, n] with b_rows
  const int32_t* b_rows_R;
  int64_t m, n;
  void* dw;  ///< [E, m, n]
  DataType dw_type;
  GradientUpdate update;  ///< kStore: 0 for an expert without rows; kAdd: dw += (rounded to the type of dw)
  int num_sms;
  int compute_capability;
  void* workspace;  ///< grouped_gemm_wgrad_workspace_bytes(): partial sums of experts with many rows; may hold anything
};
/// At most 512 KB for each multiprocessor; 0 for few rows, and for kernels that do not divide an expert's rows.
int64_t grouped_gemm_wgrad_workspace_bytes(const WgradArgs& args);
void grouped_gemm_wgrad(const WgradArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels

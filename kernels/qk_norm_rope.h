// What lies between the projection of an attention layer and attention itself: RMSNorm of queries and keys (Henry et al.,
// "Query-Key Normalization for Transformers", arXiv 2010.04245, with RMSNorm; over a head, or over the whole projection), then
// rotary embedding in the rotate-half form (Su et al., arXiv 2104.09864).
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device/data_type.h"
#include "kernels/device/host_device.h"

namespace scatterlm::kernels {

enum class QkNormRows {
  kNone,  ///< no norm
  kHead,  ///< rows of P
  kFull   ///< rows of H P queries and Hkv P keys
};

struct QkNormRopeShape {
  DataType type;  ///< of all matrices and weights
  QkNormRows norm;
  int64_t batch, positions;        ///< B, S
  int64_t query_heads, key_heads;  ///< H, Hkv
  int64_t head_dim;                ///< P, a multiple of 16

  SCATTERLM_HOST_DEVICE int64_t tokens() const { return batch * positions; }
  SCATTERLM_HOST_DEVICE int64_t row_width() const { return (query_heads + 2 * key_heads) * head_dim; }
};
/// Whether a block has enough threads for the heads of a position.
bool qk_norm_rope_takes(const QkNormRopeShape& shape);

/// rstd = 1 / sqrt(mean(x^2) + eps) of each row of queries and keys, y = rotation of (x rstd) weight; without a norm, of x. The
/// bracket and the product are rounded to the type, as three operations one after the other would do. Values are not touched.
/// Pointers are aligned to 16 bytes.
struct QkNormRopeFwdArgs {
  QkNormRopeShape shape;
  const void* qkv;       ///< [B, S, (H + 2 Hkv) P]: queries, keys, values
  const float* cos;      ///< [S, P/2]
  const float* sin;      ///< [S, P/2]
  const void* q_weight;  ///< [P] or [H P]; without a norm, this and the next three are not used
  const void* k_weight;  ///< [P] or [Hkv P]
  float* q_rstd;         ///< [B, S, H], or [B, S] of the whole projection
  float* k_rstd;         ///< [B, S, Hkv] or [B, S]
  void* q;               ///< [B, S, H, P]
  void* k;               ///< [B, S, Hkv, P]
  float eps;
};
void qk_norm_rope_fwd(const QkNormRopeFwdArgs& args, cudaStream_t stream);

/// A matrix [B, S, heads, P] with contiguous heads; strides in elements are such that each head is aligned to 16 bytes.
struct HeadsMatrix {
  const void* data;
  int64_t stride_b, stride_s, stride_h;
};

/// The gradient of qkv in one pass, rounded once, and those of the weights, summed over positions in a fixed order for one GPU.
struct QkNormRopeBwdArgs {
  QkNormRopeShape shape;
  HeadsMatrix dq, dk, dv;
  const void* qkv;  ///< as in forward; without a norm, this and the next four are not used
  const void *q_weight, *k_weight;
  const float *q_rstd, *k_rstd;
  const float *cos, *sin;       ///< [S, P/2]
  void* dqkv;                   ///< [B, S, (H + 2 Hkv) P]
  void *dq_weight, *dk_weight;  ///< as the weights
  float* workspace;             ///< qk_norm_rope_bwd_workspace_bytes
  int64_t num_sms;              ///< of the GPU
};
int64_t qk_norm_rope_bwd_workspace_bytes(const QkNormRopeShape& shape, int64_t num_sms);
void qk_norm_rope_bwd(const QkNormRopeBwdArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels

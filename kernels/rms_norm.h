// RMSNorm over rows (Zhang and Sennrich, arXiv 1910.07467), with the addition to the residual stream that precedes it.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device/data_type.h"

namespace scatterlm::kernels {

/// Sizes of all matrices, which are contiguous, of one type and aligned to 16 bytes.
struct RmsNormShape {
  DataType type;
  int64_t rows;   ///< N
  int64_t width;  ///< D, a multiple of 8, at most kRmsNormMaxWidth
};
constexpr int64_t kRmsNormMaxWidth = 16384;

/// sum = x + branch, rstd = 1 / sqrt(mean(sum^2) + eps), y = (sum rstd) weight. Sums are fp32; sum and the bracket are rounded
/// to the type before they are used. Without branch, sum is x and not written.
struct RmsNormFwdArgs {
  RmsNormShape shape;
  const void* x;       ///< [N, D]
  const void* branch;  ///< [N, D] or nullptr
  const void* weight;  ///< [D]
  void* sum;           ///< [N, D] or nullptr
  void* y;             ///< [N, D]
  float* rstd;         ///< [N]
  float eps;
};
void rms_norm_fwd(const RmsNormFwdArgs& args, cudaStream_t stream);

/// With n = x rstd, of the sum x: dx = rstd (weight dy - n mean(weight dy n)) + dsum, rounded once; dweight = sum over rows of
/// dy n, in a fixed order for one GPU.
struct RmsNormBwdArgs {
  RmsNormShape shape;
  const void* dy;      ///< [N, D]
  const void* dsum;    ///< [N, D], what else the sum was used for; or nullptr
  const void* x;       ///< [N, D]
  const void* weight;  ///< [D]
  const float* rstd;   ///< [N]
  void* dx;            ///< [N, D]
  void* dweight;       ///< [D]
  float* workspace;    ///< rms_norm_bwd_workspace_bytes
  int64_t num_sms;     ///< of the GPU
};
int64_t rms_norm_bwd_workspace_bytes(const RmsNormShape& shape, int64_t num_sms);
void rms_norm_bwd(const RmsNormBwdArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels

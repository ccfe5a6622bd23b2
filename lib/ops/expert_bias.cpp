#include "lib/ops/expert_bias.h"

#include <ATen/ATen.h>

#include "lib/ops/grouped_gemm.h"

namespace scatterlm::ops {

at::Tensor expert_bias_rows(const at::Tensor& bias_EN, const at::Tensor& offsets_E1, int64_t num_rows) {
  const auto ends_E = offsets_E1.slice(0, 1);
  const auto rows_R = at::arange(num_rows, offsets_E1.options());
  const auto experts_R = at::searchsorted(ends_E, rows_R, /*out_int32=*/true, /*right=*/true);
  return bias_EN.index_select(0, experts_R.clamp_max(bias_EN.size(0) - 1));
}

at::Tensor expert_bias_grad(const at::Tensor& dy_RN, const at::Tensor& scale_R, const at::Tensor& offsets_E1) {
  const auto wide_RN = dy_RN.to(scale_R.scalar_type());
  return grouped_gemm_wgrad(wide_RN, scale_R.unsqueeze(1), offsets_E1).squeeze(2).to(dy_RN.scalar_type());
}

}  // namespace scatterlm::ops

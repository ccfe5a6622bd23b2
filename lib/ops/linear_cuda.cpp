#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "lib/ops/grouped_gemm_cuda.h"
#include "lib/ops/linear.h"

std::optional<at::Tensor> scatterlm::ops::cuda::linear(const at::Tensor& x_RN, const at::Tensor& weight,
                                                       const std::optional<at::Tensor>& bias) {
  const int64_t rows = x_RN.size(0), width = weight.size(0);
  if (rows == 0 || rows > kernels::kSmallM || width % 8 != 0 || !kernels_take(x_RN) || !kernels_take(weight) ||
      (bias && !kernels_take(*bias)))
    return {};
  const c10::DeviceGuard guard(x_RN.device());
  auto y = at::empty({rows, width}, x_RN.options());
  kernels::grouped_gemm_fwd(
      {.product = {.experts = {.offsets_E1 = nullptr, .tiles_E3 = nullptr, .num_experts = 1, .num_rows = rows},
                   .a = x_RN.const_data_ptr(),
                   .a_rows_R = nullptr,
                   .b = weight.const_data_ptr(),
                   .n = width,
                   .k = weight.size(1),
                   .num_sms = num_sms(x_RN),
                   .compute_capability = compute_capability(x_RN)},
       .c = y.mutable_data_ptr(),
       .bias = bias ? bias->const_data_ptr() : nullptr},
      current_stream(x_RN));
  return y;
}

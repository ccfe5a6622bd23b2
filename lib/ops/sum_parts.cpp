#include "lib/ops/sum_parts.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "lib/ops/device.h"
#include "lib/ops/shape.h"
#include "lib/util/error.h"

#ifdef SCATTERLM_KERNELS
#include "kernels/sum_parts.h"
#endif

namespace scatterlm::ops {

void sum_parts(const at::Tensor& parts, at::Tensor out) {
  if (parts.dim() != 2 || parts.size(0) == 0 || out.sizes() != parts.sizes().slice(1) || !parts.is_contiguous() ||
      !out.is_contiguous() || out.scalar_type() != parts.scalar_type() || out.device() != parts.device()) {
    fail("[sum_parts] needs contiguous parts [r, n] and out [n] of one type, got {} {} and {} {}", parts.toString(),
         shape_of(parts), out.toString(), shape_of(out));
  }
#ifdef SCATTERLM_KERNELS
  const bool bf16 = out.scalar_type() == at::kBFloat16, fp32 = out.scalar_type() == at::kFloat;
  if ((bf16 || fp32) && kernels_can_load(parts) && kernels_can_load(out) && out.numel() % 8 == 0) {
    const c10::DeviceGuard guard(out.device());
    kernels::sum_parts(
        {parts.const_data_ptr(), out.mutable_data_ptr(), bf16 ? kernels::DataType::kBf16 : kernels::DataType::kFp32,
         static_cast<int>(parts.size(0)), out.numel()},
        current_stream(out));
    return;
  }
#endif
  auto sum =
      parts[0].to(out.scalar_type() == at::kBFloat16 ? at::kFloat : out.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  for (int64_t r = 1; r < parts.size(0); ++r) sum.add_(parts[r]);
  out.copy_(sum);
}

}  // namespace scatterlm::ops

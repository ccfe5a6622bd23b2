#include "lib/ops/reduce_partials.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "lib/ops/device.h"
#include "lib/ops/shape.h"
#include "lib/util/error.h"

#ifdef SCATTERLM_KERNELS
#include "kernels/reduce_partials.h"
#endif

namespace scatterlm::ops {

void reduce_partials(const at::Tensor& others, const at::Tensor& own, int64_t own_index, at::Tensor out) {
  const auto fits = [&](const at::Tensor& x) {
    return x.is_contiguous() && x.scalar_type() == own.scalar_type() && x.device() == own.device();
  };
  if (own.dim() != 1 || others.dim() != 2 || others.size(1) != own.size(0) || out.sizes() != own.sizes() || own_index < 0 ||
      own_index > others.size(0) || !fits(others) || !fits(own) || !fits(out)) {
    fail(
        "[reduce_partials] needs contiguous others [r-1, n], own [n] and out [n] of one type, got {} {}, {} {} at {} and {} {}",
        others.toString(), shape_of(others), own.toString(), shape_of(own), own_index, out.toString(), shape_of(out));
  }
#ifdef SCATTERLM_KERNELS
  const bool bf16 = own.scalar_type() == at::kBFloat16, fp32 = own.scalar_type() == at::kFloat;
  if ((bf16 || fp32) && kernels_can_load(others) && kernels_can_load(own) && kernels_can_load(out) && own.numel() % 8 == 0) {
    const c10::DeviceGuard guard(own.device());
    kernels::reduce_partials({.others = others.const_data_ptr(),
                              .own = own.const_data_ptr(),
                              .out = out.mutable_data_ptr(),
                              .type = bf16 ? kernels::DataType::kBf16 : kernels::DataType::kFp32,
                              .num_others = others.size(0),
                              .own_index = own_index,
                              .count = own.numel()},
                             current_stream(own));
    return;
  }
#endif
  const auto part = [&](int64_t r) { return r == own_index ? own : others[r < own_index ? r : r - 1]; };
  auto sum =
      part(0).to(own.scalar_type() == at::kBFloat16 ? at::kFloat : own.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  for (int64_t r = 1; r <= others.size(0); ++r) sum.add_(part(r));
  out.copy_(sum);
}

}  // namespace scatterlm::ops

#include "lib/ops/reduce_partials.h"

#include <ATen/ATen.h>

#include "lib/ops/shape.h"
#include "lib/util/error.h"

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
  if (cuda::reduce_partials(others, own, own_index, out)) return;
  const auto part = [&](int64_t r) { return r == own_index ? own : others[r < own_index ? r : r - 1]; };
  auto sum =
      part(0).to(own.scalar_type() == at::kBFloat16 ? at::kFloat : own.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  for (int64_t r = 1; r <= others.size(0); ++r) sum.add_(part(r));
  out.copy_(sum);
}

}  // namespace scatterlm::ops

#include "lib/ops/gather_sum.h"

#include <ATen/ATen.h>

namespace scatterlm::ops {

at::Tensor gather_rows(const at::Tensor& x, const at::Tensor& index_R, int64_t divisor) {
  if (x.is_cpu()) return cpu::gather_rows(x, index_R, divisor);
  return x.index_select(0, divisor == 1 ? index_R : at::floor_divide(index_R, divisor));
}

at::Tensor gather_sum(const at::Tensor& y_RN, const at::Tensor& inverse_R, const TokenSlots& slots,
                      const std::optional<at::Tensor>& gates) {
  if (auto sums_TN = cuda::gather_sum(y_RN, inverse_R, slots, gates)) return *sums_TN;
  return y_RN.is_cpu() ? cpu::gather_sum(y_RN, inverse_R, slots, gates) : ref::gather_sum(y_RN, inverse_R, slots, gates);
}

}  // namespace scatterlm::ops

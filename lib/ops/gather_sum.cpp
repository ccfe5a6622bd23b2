#include "lib/ops/gather_sum.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <cstring>

#include "lib/ops/cpu_loops.h"
#include "lib/ops/device.h"

#ifdef SCATTERLM_KERNELS
#include "kernels/gather_sum.h"
#endif

namespace scatterlm::ops {

at::Tensor gather_rows(const at::Tensor& x, const at::Tensor& index_R, int64_t divisor) {
  if (!x.is_cpu()) return x.index_select(0, divisor == 1 ? index_R : at::floor_divide(index_R, divisor));
  const int64_t width = x.size(1);
  const size_t row_bytes = width * x.element_size();
  auto out = at::empty({index_R.size(0), width}, x.options());
  const auto* from = static_cast<const char*>(x.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  const auto* index = index_R.const_data_ptr<int32_t>();
  for_rows(index_R.size(0), width, [&](int64_t first, int64_t last) {
    for (int64_t m = first; m < last; ++m) std::memcpy(to + m * row_bytes, from + index[m] / divisor * row_bytes, row_bytes);
  });
  return out;
}

at::Tensor gather_sum(const at::Tensor& y_RN, const at::Tensor& inverse_R, int64_t top_k,
                      const std::optional<at::Tensor>& gates_TK) {
  const int64_t width = y_RN.size(1), tokens = inverse_R.size(0) / top_k;
#ifdef SCATTERLM_KERNELS
  if (has_kernels(y_RN) && y_RN.scalar_type() == at::kBFloat16 && width % 8 == 0 && y_RN.is_contiguous()) {
    const c10::DeviceGuard guard(y_RN.device());
    auto out = at::empty({tokens, width}, y_RN.options());
    kernels::gather_sum({y_RN.const_data_ptr(), inverse_R.const_data_ptr<int32_t>(),
                         gates_TK ? gates_TK->const_data_ptr<float>() : nullptr, out.mutable_data_ptr(), tokens, top_k, width},
                        current_stream(y_RN));
    return out;
  }
#endif
  if (!y_RN.is_cpu()) {
    auto rows = y_RN.index_select(0, inverse_R).view({tokens, top_k, width});
    if (gates_TK) rows = rows * gates_TK->unsqueeze(2);  // fp32 gates widen bfloat16 rows
    return rows.sum(1).to(y_RN.scalar_type());
  }
  auto out = at::empty({tokens, width}, y_RN.options());
  dispatch_float(y_RN, "gather_sum", [&](auto zero) {
    using T = decltype(zero);
    using A = acc_t<T>;
    const T* rows = y_RN.const_data_ptr<T>();
    const A* gates = gates_TK ? gates_TK->const_data_ptr<A>() : nullptr;
    const auto* inverse = inverse_R.const_data_ptr<int32_t>();
    T* sums = out.mutable_data_ptr<T>();
    for_rows(tokens, top_k * width, [&](int64_t first, int64_t last) {
      std::vector<A> sum(width);
      for (int64_t t = first; t < last; ++t) {
        std::fill(sum.begin(), sum.end(), A(0));
        for (int64_t i = t * top_k; i < (t + 1) * top_k; ++i) {
          const T* row = rows + inverse[i] * width;
          const A gate = gates ? gates[i] : A(1);
          for (int64_t n = 0; n < width; ++n) sum[n] += gate * A(row[n]);
        }
        for (int64_t n = 0; n < width; ++n) sums[t * width + n] = T(sum[n]);
      }
    });
  });
  return out;
}

}  // namespace scatterlm::ops

// Moving and adding rows as loops over CPU tensors, and in LibTorch's own operations on any device.
#include <ATen/ATen.h>

#include <cstring>

#include "lib/ops/cpu_loops.h"
#include "lib/ops/gather_sum.h"

namespace scatterlm::ops {

at::Tensor cpu::gather_rows(const at::Tensor& x, const at::Tensor& index_R, int64_t divisor) {
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

at::Tensor cpu::gather_sum(const at::Tensor& y_RN, const at::Tensor& inverse_R, const TokenSlots& slots,
                           const std::optional<at::Tensor>& gates) {
  const int64_t width = y_RN.size(1), top_k = slots.top_k, tokens = slots.num_tokens(inverse_R.size(0));
  const auto* offsets = slots.offsets_T1.defined() ? slots.offsets_T1.const_data_ptr<int32_t>() : nullptr;
  auto out = at::empty({tokens, width}, y_RN.options());
  dispatch_float(y_RN, "gather_sum", [&](auto zero) {
    using T = decltype(zero);
    using A = acc_t<T>;
    const T* rows = y_RN.const_data_ptr<T>();
    const A* gate_of_slot = gates ? gates->const_data_ptr<A>() : nullptr;
    const auto* inverse = inverse_R.const_data_ptr<int32_t>();
    T* sums = out.mutable_data_ptr<T>();
    for_rows(tokens, top_k * width, [&](int64_t first, int64_t last) {
      std::vector<A> sum(width);
      for (int64_t t = first; t < last; ++t) {
        std::fill(sum.begin(), sum.end(), A(0));
        const int64_t begin = offsets ? offsets[t] : t * top_k, end = offsets ? offsets[t + 1] : begin + top_k;
        for (int64_t i = begin; i < end; ++i) {
          const T* row = rows + inverse[i] * width;
          const A gate = gate_of_slot ? gate_of_slot[i] : A(1);
          for (int64_t n = 0; n < width; ++n) sum[n] += gate * A(row[n]);
        }
        for (int64_t n = 0; n < width; ++n) sums[t * width + n] = T(sum[n]);
      }
    });
  });
  return out;
}

at::Tensor ref::gather_sum(const at::Tensor& y_RN, const at::Tensor& inverse_R, const TokenSlots& slots,
                           const std::optional<at::Tensor>& gates) {
  auto rows = y_RN.index_select(0, inverse_R);
  if (gates) rows = rows * gates->reshape({-1, 1});  // fp32 gates widen bfloat16 rows
  const auto sums = slots.offsets_T1.defined()
                        ? at::segment_reduce(rows, "sum", {}, {}, slots.offsets_T1, /*axis=*/0, /*unsafe=*/true, /*initial=*/0)
                        : rows.view({slots.num_tokens(rows.size(0)), slots.top_k, rows.size(1)}).sum(1);
  return sums.to(y_RN.scalar_type());
}

}  // namespace scatterlm::ops

// Rotary position embedding as loops over a CPU tensor, and in LibTorch's own operations on any device.
#include <ATen/ATen.h>

#include "lib/ops/accumulate_type.h"
#include "lib/ops/cpu_loops.h"
#include "lib/ops/rope.h"

namespace scatterlm::ops {

at::Tensor cpu::rotate(const at::Tensor& x_BSGHP, const at::Tensor& cos, const at::Tensor& sin, int sign) {
  const int64_t batch = x_BSGHP.size(0), positions = x_BSGHP.size(1), groups = x_BSGHP.size(2), heads = x_BSGHP.size(3);
  const int64_t width = x_BSGHP.size(4), half = width / 2, row_width = groups * heads * width;
  const auto strides = x_BSGHP.strides();
  auto y = at::empty(x_BSGHP.sizes(), x_BSGHP.options());
  dispatch_float(x_BSGHP, "rope", [&](auto zero) {
    using T = decltype(zero);
    using A = acc_t<T>;
    const T* in = x_BSGHP.const_data_ptr<T>();
    T* out = y.mutable_data_ptr<T>();
    const float *cosines = cos.const_data_ptr<float>(), *sines = sin.const_data_ptr<float>();
    for_rows(batch * positions, row_width, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        const int64_t b = row / positions, s = row % positions;
        const float *c = cosines + s * half, *d = sines + s * half;
        for (int64_t head = 0; head < groups * heads; ++head) {
          const int64_t g = head / heads, h = head % heads;
          const T* from = in + b * strides[0] + s * strides[1] + g * strides[2] + h * strides[3];
          T* __restrict to = out + row * row_width + head * width;
          for (int64_t i = 0; i < half; ++i) {
            const A low = A(from[i]), high = A(from[i + half]), cosine = A(c[i]), sine = A(sign) * A(d[i]);
            to[i] = T(low * cosine - high * sine);
            to[i + half] = T(high * cosine + low * sine);
          }
        }
      }
    });
  });
  return y;
}

at::Tensor ref::rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  auto table_shape = std::vector<int64_t>(x.dim(), 1);
  table_shape[1] = x.size(1);
  table_shape.back() = x.size(-1) / 2;
  const auto c = cos.view(table_shape), s = sin.view(table_shape);
  const auto halves = x.to(accumulate_type(x)).chunk(2, -1);
  return at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1).to(x.scalar_type());
}

}  // namespace scatterlm::ops

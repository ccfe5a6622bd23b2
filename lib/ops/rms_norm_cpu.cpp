// RMSNorm as loops over a CPU tensor.
#include <ATen/ATen.h>

#include "lib/ops/cpu_loops.h"
#include "lib/ops/rms_norm.h"

namespace scatterlm::ops {
namespace {

/// x [N, D] -> y; the reciprocal roots are kept for backward.
template <class T>
void norm_fwd(const at::Tensor& x, const at::Tensor& weight, double eps, at::Tensor& y, at::Tensor& rstd_N) {
  using A = acc_t<T>;
  const int64_t width = x.size(1);
  const T *in = x.const_data_ptr<T>(), *w = weight.const_data_ptr<T>();
  T* out = y.mutable_data_ptr<T>();
  A* rstd = rstd_N.mutable_data_ptr<A>();
  for_rows(x.size(0), width, [&](int64_t first, int64_t last) {
    for (int64_t n = first; n < last; ++n) {
      const T* row = in + n * width;
      T* out_row = out + n * width;
      const A square = lane_sum<A>(width, [&](int64_t i) { return A(row[i]) * A(row[i]); });
      const A r = A(1) / std::sqrt(square / A(width) + A(eps));
      rstd[n] = r;
      for (int64_t i = 0; i < width; ++i) out_row[i] = T(A(T(A(row[i]) * r)) * A(w[i]));
    }
  });
}

/// With n = x rstd: dx = rstd (w dy - n mean(w dy n)), dweight = sum over rows of dy n.
template <class T>
void norm_bwd(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd_N, at::Tensor& dx,
              at::Tensor& dweight) {
  using A = acc_t<T>;
  const RowBlocks blocks{.rows = x.size(0)};
  const int64_t width = x.size(1);
  const T *grad = dy.const_data_ptr<T>(), *in = x.const_data_ptr<T>(), *w = weight.const_data_ptr<T>();
  const A* rstd = rstd_N.const_data_ptr<A>();
  T* out = dx.mutable_data_ptr<T>();
  auto partial = at::zeros({RowBlocks::kCount, width}, rstd_N.options());
  A* sums = partial.mutable_data_ptr<A>();
  blocks.run(width, [&](int64_t block, int64_t first, int64_t last) {
    A* __restrict sum = sums + block * width;
    for (int64_t n = first; n < last; ++n) {
      const T *g = grad + n * width, *row = in + n * width;
      T* __restrict out_row = out + n * width;
      const A r = rstd[n];
      const A dot = lane_sum<A>(width, [&](int64_t i) { return A(g[i]) * A(w[i]) * A(row[i]); });
      const A mean = dot * r * r / A(width);
      for (int64_t i = 0; i < width; ++i) {
        out_row[i] = T(r * (A(g[i]) * A(w[i]) - A(row[i]) * mean));
        sum[i] += A(g[i]) * (A(row[i]) * r);
      }
    }
  });
  dweight = partial.sum(0).to(weight.scalar_type());
}

}  // namespace

void cpu::rms_norm_fwd(const at::Tensor& x_ND, const at::Tensor& weight, double eps, at::Tensor& y_ND, at::Tensor& rstd_N) {
  dispatch_float(x_ND, "rms_norm", [&](auto zero) { norm_fwd<decltype(zero)>(x_ND, weight, eps, y_ND, rstd_N); });
}

void cpu::rms_norm_bwd(const at::Tensor& dy_ND, const at::Tensor& x_ND, const at::Tensor& weight, const at::Tensor& rstd_N,
                       at::Tensor& dx_ND, at::Tensor& dweight) {
  dispatch_float(x_ND, "rms_norm", [&](auto zero) { norm_bwd<decltype(zero)>(dy_ND, x_ND, weight, rstd_N, dx_ND, dweight); });
}

}  // namespace scatterlm::ops

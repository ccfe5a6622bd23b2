#include "lib/ops/rms_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lib/ops/accumulate_type.h"
#include "lib/ops/cpu_loops.h"
#include "lib/ops/shape.h"

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

class RmsNormFunction : public torch::autograd::Function<RmsNormFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, double eps) {
    auto y = at::empty_like(x);
    auto rstd_N = at::empty({x.size(0)}, x.options().dtype(accumulate_type(x)));
    dispatch_float(x, "rms_norm", [&](auto zero) { norm_fwd<decltype(zero)>(x, weight, eps, y, rstd_N); });
    ctx->save_for_backward({x, weight, rstd_N});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &rstd_N = saved[2], dy = grads[0].contiguous();
    auto dx = at::empty_like(x);
    at::Tensor dweight;
    dispatch_float(x, "rms_norm", [&](auto zero) { norm_bwd<decltype(zero)>(dy, x, weight, rstd_N, dx, dweight); });
    return {dx, dweight, {}};
  }
};

}  // namespace

at::Tensor ref::rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const auto wide = x.to(accumulate_type(x));
  return (wide * at::rsqrt(wide.square().mean(-1, true) + eps)).to(x.scalar_type()) * weight;
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (x.dim() < 1) fail("[rms_norm] x must be [..., D], got a scalar");
  if (weight.dim() != 1 || weight.size(0) != x.size(-1))
    fail("[rms_norm] weight must be [D={}], got {}", x.size(-1), shape_of(weight));
  if (weight.scalar_type() != x.scalar_type())
    fail("[rms_norm] weight must be {} as x, got {}", c10::toString(x.scalar_type()), c10::toString(weight.scalar_type()));
  if (!x.is_cpu()) return at::rms_norm(x, weight.sizes(), weight, eps);
  return RmsNormFunction::apply(x.reshape({-1, x.size(-1)}).contiguous(), weight.contiguous(), eps).view(x.sizes());
}

}  // namespace scatterlm::ops

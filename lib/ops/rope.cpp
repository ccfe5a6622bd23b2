#include "lib/ops/rope.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lib/ops/cpu_loops.h"
#include "lib/ops/device.h"
#include "lib/ops/shape.h"
#include "lib/ops/wide_type.h"

#ifdef SCATTERLM_KERNELS
#include "kernels/rope.h"
#endif

namespace scatterlm::ops {
namespace {

bool kernel_takes(const at::Tensor& x) {
  const auto type = x.scalar_type();
  return has_kernels(x) && x.size(-1) % 16 == 0 && (type == at::kBFloat16 || type == at::kFloat);
}

#ifdef SCATTERLM_KERNELS
/// Whether every head starts at a multiple of 16 bytes.
bool heads_are_aligned(const at::Tensor& x_BSHP) {
  const int64_t elements = 16 / x_BSHP.element_size();
  return reinterpret_cast<uintptr_t>(x_BSHP.const_data_ptr()) % 16 == 0 && x_BSHP.stride(0) % elements == 0 &&
         x_BSHP.stride(1) % elements == 0 && x_BSHP.stride(2) % elements == 0;
}

at::Tensor rotate_on_gpu(const at::Tensor& x_BSHP, const at::Tensor& cos, const at::Tensor& sin, int sign) {
  const c10::DeviceGuard guard(x_BSHP.device());
  const auto x = heads_are_aligned(x_BSHP) ? x_BSHP : x_BSHP.clone(at::MemoryFormat::Contiguous);
  auto y = at::empty(x.sizes(), x.options());
  kernels::rope({.x = x.const_data_ptr(),
                 .cos = cos.const_data_ptr<float>(),
                 .sin = sin.const_data_ptr<float>(),
                 .y = y.mutable_data_ptr(),
                 .type = x.scalar_type() == at::kFloat ? kernels::DataType::kFp32 : kernels::DataType::kBf16,
                 .back = sign < 0,
                 .batch = x.size(0),
                 .positions = x.size(1),
                 .heads = x.size(2),
                 .head_dim = x.size(3),
                 .stride_b = x.stride(0),
                 .stride_s = x.stride(1),
                 .stride_h = x.stride(2)},
                current_stream(x));
  return y;
}
#endif

/// Rotates x by the angles of the tables, or back (sign -1), which is the gradient: the rotation is orthogonal.
at::Tensor rotate(const at::Tensor& x_in, const at::Tensor& cos, const at::Tensor& sin, int sign) {
  const int64_t batch = x_in.size(0), positions = x_in.size(1), width = x_in.size(-1), half = width / 2;
  const int64_t middle = x_in.numel() / std::max<int64_t>(1, batch * positions * width);
  const auto x = (x_in.stride(-1) == 1 ? x_in : x_in.contiguous()).reshape({batch, positions, middle, width});
  const int64_t heads = x.size(2), stride_b = x.stride(0), stride_s = x.stride(1), stride_h = x.stride(2);
#ifdef SCATTERLM_KERNELS
  if (kernel_takes(x)) return rotate_on_gpu(x, cos, sin, sign).view(x_in.sizes());
#endif
  auto y = at::empty(x.sizes(), x.options());
  dispatch_float(x, "rope", [&](auto zero) {
    using T = decltype(zero);
    using A = acc_t<T>;
    const T* in = x.const_data_ptr<T>();
    T* out = y.mutable_data_ptr<T>();
    const float *cosines = cos.const_data_ptr<float>(), *sines = sin.const_data_ptr<float>();
    for_rows(batch * positions, heads * width, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        const int64_t b = row / positions, s = row % positions;
        const float *c = cosines + s * half, *d = sines + s * half;
        for (int64_t h = 0; h < heads; ++h) {
          const T* from = in + b * stride_b + s * stride_s + h * stride_h;
          T* __restrict to = out + (row * heads + h) * width;
          for (int64_t i = 0; i < half; ++i) {
            const A low = A(from[i]), high = A(from[i + half]), cosine = A(c[i]), sine = A(sign) * A(d[i]);
            to[i] = T(low * cosine - high * sine);
            to[i + half] = T(high * cosine + low * sine);
          }
        }
      }
    });
  });
  return y.view(x_in.sizes());
}

class RopeFunction : public torch::autograd::Function<RopeFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    ctx->save_for_backward({cos, sin});
    return rotate(x, cos, sin, 1);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    return {rotate(grads[0], saved[0], saved[1], -1), {}, {}};
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> rope_tables(int64_t max_positions, int64_t head_dim, double theta, at::Device device) {
  if (head_dim < 2 || head_dim % 2 != 0) fail("[rope] head_dim must be even and positive, got {}", head_dim);
  const auto wide = at::TensorOptions().dtype(at::kDouble);  // fp32 angles lose digits at long positions
  const auto exponents = at::arange(0, head_dim, 2, wide) / static_cast<double>(head_dim);
  const auto angles = at::outer(at::arange(max_positions, wide), at::pow(at::scalar_tensor(theta, wide), -exponents));
  return {at::cos(angles).to(device, at::kFloat), at::sin(angles).to(device, at::kFloat)};
}

at::Tensor ref::rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  auto table_shape = std::vector<int64_t>(x.dim(), 1);
  table_shape[1] = x.size(1);
  table_shape.back() = x.size(-1) / 2;
  const auto c = cos.view(table_shape), s = sin.view(table_shape);
  const auto halves = x.to(wide_type(x)).chunk(2, -1);
  return at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1).to(x.scalar_type());
}

at::Tensor rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  if (x.dim() < 3 || x.size(-1) % 2 != 0) fail("[rope] x must be [B, S, ..., P] with even P, got {}", shape_of(x));
  for (const auto* table : {&cos, &sin}) {
    if (table->dim() != 2 || table->size(0) != x.size(1) || table->size(1) != x.size(-1) / 2 ||
        table->scalar_type() != at::kFloat)
      fail("[rope] cos and sin must be float [S={}, P/2={}], got {} {}", x.size(1), x.size(-1) / 2,
           c10::toString(table->scalar_type()), shape_of(*table));
  }
  if (!x.is_cpu() && !kernel_takes(x)) return ref::rope(x, cos, sin);
  return RopeFunction::apply(x, cos.contiguous(), sin.contiguous());
}

}  // namespace scatterlm::ops

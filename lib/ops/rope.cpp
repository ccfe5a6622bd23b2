#include "lib/ops/rope.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lib/ops/accumulate_type.h"
#include "lib/ops/cpu_loops.h"
#include "lib/ops/device.h"
#include "lib/ops/shape.h"

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
bool heads_are_aligned(const at::Tensor& x_BSGHP) {
  const auto strides = x_BSGHP.strides().slice(0, 4);
  return reinterpret_cast<uintptr_t>(x_BSGHP.const_data_ptr()) % 16 == 0 &&
         std::all_of(strides.begin(), strides.end(), [&](int64_t n) { return n * x_BSGHP.element_size() % 16 == 0; });
}

at::Tensor rotate_on_gpu(const at::Tensor& x_BSGHP, const at::Tensor& cos, const at::Tensor& sin, int sign) {
  const c10::DeviceGuard guard(x_BSGHP.device());
  const auto x = heads_are_aligned(x_BSGHP) ? x_BSGHP : x_BSGHP.clone(at::MemoryFormat::Contiguous);
  auto y = at::empty(x.sizes(), x.options());
  kernels::rope({.x = x.const_data_ptr(),
                 .cos = cos.const_data_ptr<float>(),
                 .sin = sin.const_data_ptr<float>(),
                 .y = y.mutable_data_ptr(),
                 .type = x.scalar_type() == at::kFloat ? kernels::DataType::kFp32 : kernels::DataType::kBf16,
                 .back = sign < 0,
                 .batch = x.size(0),
                 .positions = x.size(1),
                 .groups = x.size(2),
                 .heads = x.size(3),
                 .head_dim = x.size(4),
                 .stride_b = x.stride(0),
                 .stride_s = x.stride(1),
                 .stride_g = x.stride(2),
                 .stride_h = x.stride(3)},
                current_stream(x));
  return y;
}
#endif

at::Tensor rotate_on_cpu(const at::Tensor& x_BSGHP, const at::Tensor& cos, const at::Tensor& sin, int sign) {
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

/// Rotates x by the angles of the tables, or back (sign -1), which is the gradient: the rotation is orthogonal.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, int sign) {
  auto x_BSGHP = x.stride(-1) == 1 ? x : x.contiguous();
  while (x_BSGHP.dim() < 5) x_BSGHP = x_BSGHP.unsqueeze(2);
#ifdef SCATTERLM_KERNELS
  if (kernel_takes(x)) return rotate_on_gpu(x_BSGHP, cos, sin, sign).view(x.sizes());
#endif
  return x.is_cpu() ? rotate_on_cpu(x_BSGHP, cos, sin, sign).view(x.sizes()) : ref::rope(x, cos, sign * sin);
}

/// The gradient lies in memory as x does, so that whoever made x a view of another tensor needs no copy of it.
class RopeFunction : public torch::autograd::Function<RopeFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    ctx->save_for_backward({cos, sin});
    ctx->saved_data["swapped"] = x.dim() == 5 && x.stride(2) < x.stride(3);
    return rotate(x, cos, sin, 1);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const bool swapped = ctx->saved_data["swapped"].toBool();
    const auto in_order_of_x = [&](const at::Tensor& t) { return swapped ? t.transpose(2, 3) : t; };
    return {in_order_of_x(rotate(in_order_of_x(grads[0]), saved[0], saved[1], -1)), {}, {}};
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
  const auto halves = x.to(accumulate_type(x)).chunk(2, -1);
  return at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1).to(x.scalar_type());
}

at::Tensor rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  if (x.dim() < 3 || x.dim() > 5 || x.size(-1) % 2 != 0)
    fail("[rope] x must be [B, S, P], [B, S, H, P] or [B, S, G, H, P] with even P, got {}", shape_of(x));
  for (const auto* table : {&cos, &sin}) {
    if (table->dim() != 2 || table->size(0) != x.size(1) || table->size(1) != x.size(-1) / 2 ||
        table->scalar_type() != at::kFloat)
      fail("[rope] cos and sin must be float [S={}, P/2={}], got {} {}", x.size(1), x.size(-1) / 2,
           c10::toString(table->scalar_type()), shape_of(*table));
  }
  return RopeFunction::apply(x, cos.contiguous(), sin.contiguous());
}

}  // namespace scatterlm::ops

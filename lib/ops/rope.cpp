#include "lib/ops/rope.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lib/ops/shape.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

/// Rotates x by the angles of the tables, or back (sign -1), which is the gradient: the rotation is orthogonal.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, int sign) {
  auto x_BSGHP = x.stride(-1) == 1 ? x : x.contiguous();
  while (x_BSGHP.dim() < 5) x_BSGHP = x_BSGHP.unsqueeze(2);
  if (auto y = cuda::rotate(x_BSGHP, cos, sin, sign)) return y->view(x.sizes());
  return x.is_cpu() ? cpu::rotate(x_BSGHP, cos, sin, sign).view(x.sizes()) : ref::rope(x, cos, sign * sin);
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

at::Tensor rope_frequencies(int64_t head_dim, double theta) {
  if (head_dim < 2 || head_dim % 2 != 0) fail("[rope] head_dim must be even and positive, got {}", head_dim);
  const auto wide = at::TensorOptions().dtype(at::kDouble);  // fp32 angles lose digits at long positions
  const auto exponents = at::arange(0, head_dim, 2, wide) / static_cast<double>(head_dim);
  return at::pow(at::scalar_tensor(theta, wide), -exponents);
}

std::pair<at::Tensor, at::Tensor> rope_tables(int64_t max_positions, const at::Tensor& frequencies, double factor,
                                              at::Device device) {
  const auto angles = at::outer(at::arange(max_positions, frequencies.options()), frequencies);
  const auto table = [&](const at::Tensor& values) { return (values * factor).to(device, at::kFloat); };
  return {table(at::cos(angles)), table(at::sin(angles))};
}

std::pair<at::Tensor, at::Tensor> rope_tables(int64_t max_positions, int64_t head_dim, double theta, at::Device device) {
  return rope_tables(max_positions, rope_frequencies(head_dim, theta), 1, device);
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

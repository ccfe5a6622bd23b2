#include "lib/ops/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lib/ops/gemm.h"
#include "lib/ops/shape.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

class LinearFunction : public torch::autograd::Function<LinearFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight) {
    ctx->save_for_backward({x, weight});
    auto y = at::empty({x.size(0), weight.size(0)}, x.options());
    gemm(y, x, weight.t());
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], dy = grads[0].contiguous();
    at::Tensor dx, dweight;
    if (ctx->needs_input_grad(0)) gemm(dx = at::empty_like(x), dy, weight);
    if (ctx->needs_input_grad(1)) gemm(dweight = at::empty_like(weight), dy.t(), x);
    return {dx, dweight};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  if (x.dim() < 1 || weight.dim() != 2 || weight.size(1) != x.size(-1))
    fail("[linear] x and weight must be [..., N_in] and [N_out, N_in], got {} and {}", shape_of(x), shape_of(weight));
  if (weight.scalar_type() != x.scalar_type())
    fail("[linear] weight must be {} as x, got {}", c10::toString(x.scalar_type()), c10::toString(weight.scalar_type()));
  if (bias && (bias->dim() != 1 || bias->size(0) != weight.size(0)))
    fail("[linear] bias must be [N_out={}], got {}", weight.size(0), shape_of(*bias));
  if (!x.is_cpu()) return at::linear(x, weight, bias);
  auto shape = x.sizes().vec();
  shape.back() = weight.size(0);
  const auto y = LinearFunction::apply(x.reshape({-1, x.size(-1)}).contiguous(), weight.contiguous()).view(shape);
  return bias ? y + *bias : y;
}

}  // namespace scatterlm::ops

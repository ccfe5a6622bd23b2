#include "lib/ops/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lib/ops/device.h"
#include "lib/ops/gemm.h"
#include "lib/ops/gradient_target.h"
#include "lib/ops/shape.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

/// Whether weight gradients of these products go to their GradientTarget unrounded. On a CPU autograd adds them: a product that
/// starts from the sum so far is rounded otherwise.
bool adds_in_place(const at::Tensor& x) { return has_kernels(x) && x.scalar_type() == at::kBFloat16; }

bool wants_gradient(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  return at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad() || (bias && bias->requires_grad()));
}

/// With a bias the product is that of at::linear, as it is on any GPU.
class LinearFunction : public torch::autograd::Function<LinearFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["biased"] = bias.has_value();
    if (!x.is_cpu() || bias) return at::linear(x, weight, bias);
    auto y = at::empty({x.size(0), weight.size(0)}, x.options());
    gemm(y, x, weight.t());
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], dy = grads[0].contiguous();
    at::Tensor dx, dweight, dbias;
    if (ctx->needs_input_grad(0)) gemm(dx = at::empty_like(x), dy, weight);
    if (ctx->needs_input_grad(1)) dweight = weight_gradient(weight, dy, x);
    if (ctx->saved_data["biased"].toBool() && ctx->needs_input_grad(2)) dbias = dy.sum(0);
    return {dx, dweight, dbias};
  }

 private:
  static at::Tensor weight_gradient(const at::Tensor& weight, const at::Tensor& dy, const at::Tensor& x) {
    if (!adds_in_place(x)) {
      auto dweight = at::empty_like(weight);
      gemm(dweight, dy.t(), x);
      return dweight;
    }
    const GradientTarget target(weight);
    update_gemm(target.tensor(), dy.t(), x, target.update());
    return target.result();
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
  const bool in_place = adds_in_place(x) && at::GradMode::is_enabled() && weight.requires_grad();
  auto shape = x.sizes().vec();
  shape.back() = weight.size(0);
  const auto rows = x.reshape({-1, x.size(-1)}).contiguous();
  if (!wants_gradient(x, weight, bias)) {
    if (const auto y = cuda::linear(rows, weight, bias)) return y->view(shape);
  }
  if (!x.is_cpu() && !in_place) return at::linear(x, weight, bias);
  if (in_place) return LinearFunction::apply(rows, weight.contiguous(), bias).view(shape);
  const auto y = LinearFunction::apply(rows, weight.contiguous(), std::nullopt).view(shape);
  return bias ? y + *bias : y;
}

}  // namespace scatterlm::ops

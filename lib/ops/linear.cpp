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

at::Tensor weight_gradient(const at::Tensor& weight, const at::Tensor& dy, const at::Tensor& x) {
  if (!adds_in_place(x)) {
    auto dweight = at::empty_like(weight);
    gemm(dweight, dy.t(), x);
    return dweight;
  }
  const GradientTarget target(weight);
  update_gemm(target.tensor(), dy.t(), x, target.update());
  return target.result();
}

at::Tensor product(const at::Tensor& x, const at::Tensor& weight) {
  if (!x.is_cpu()) return at::linear(x, weight);
  auto y = at::empty({x.size(0), weight.size(0)}, x.options());
  gemm(y, x, weight.t());
  return y;
}

/// With a bias the product is that of at::linear, as it is on any GPU.
class LinearFunction : public torch::autograd::Function<LinearFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["biased"] = bias.has_value();
    return bias ? at::linear(x, weight, bias) : product(x, weight);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], dy = grads[0].contiguous();
    at::Tensor dx, dweight, dbias;
    if (ctx->needs_input_grad(0)) dx = rows_gradient({}, dy, weight);
    if (ctx->needs_input_grad(1)) dweight = weight_gradient(weight, dy, x);
    if (ctx->saved_data["biased"].toBool() && ctx->needs_input_grad(2)) dbias = dy.sum(0);
    return {dx, dweight, dbias};
  }
};

class LinearAndRowsFunction : public torch::autograd::Function<LinearAndRowsFunction> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_TN,
                                                const at::Tensor& weight_MN) {
    ctx->save_for_backward({x_TN, weight_MN});
    ctx->set_materialize_grads(false);
    return {product(x_TN, weight_MN), x_TN};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    if (!grads[0].defined()) return {grads[1], {}};
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x_TN = saved[0], &weight_MN = saved[1], dy_TM = grads[0].contiguous();
    at::Tensor dx_TN, dweight_MN;
    if (ctx->needs_input_grad(0)) dx_TN = rows_gradient(grads[1], dy_TM, weight_MN);
    if (ctx->needs_input_grad(1)) dweight_MN = weight_gradient(weight_MN, dy_TM, x_TN);
    return {dx_TN, dweight_MN};
  }
};

class AddLinearFunction : public torch::autograd::Function<AddLinearFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, at::Tensor base_TM, const at::Tensor& x_TN,
                            const at::Tensor& weight_MN) {
    ctx->save_for_backward({x_TN, weight_MN});
    ctx->mark_dirty({base_TM});
    gemm_add(base_TM, x_TN, weight_MN.t());
    return base_TM;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x_TN = saved[0], &weight_MN = saved[1], dy_TM = grads[0].contiguous();
    at::Tensor dx_TN, dweight_MN;
    if (ctx->needs_input_grad(1)) dx_TN = rows_gradient({}, dy_TM, weight_MN);
    if (ctx->needs_input_grad(2)) dweight_MN = weight_gradient(weight_MN, dy_TM, x_TN);
    return {grads[0], dx_TN, dweight_MN};
  }
};

void check_rows(const char* op, const at::Tensor& x_TN, const at::Tensor& weight_MN) {
  if (x_TN.dim() != 2 || weight_MN.dim() != 2 || weight_MN.size(1) != x_TN.size(1) ||
      weight_MN.scalar_type() != x_TN.scalar_type())
    fail("[{}] x and weight must be [T, N] and [M, N] of one dtype, got {} {} and {} {}", op, c10::toString(x_TN.scalar_type()),
         shape_of(x_TN), c10::toString(weight_MN.scalar_type()), shape_of(weight_MN));
}

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

at::Tensor rows_gradient(const at::Tensor& others_TN, const at::Tensor& dy_TM, const at::Tensor& weight_MN) {
  if (others_TN.defined()) {
    const auto dx_TN = others_TN.contiguous();
    gemm_add(dx_TN, dy_TM, weight_MN);
    return dx_TN;
  }
  const auto dx_TN = at::empty({dy_TM.size(0), weight_MN.size(1)}, dy_TM.options());
  gemm(dx_TN, dy_TM, weight_MN);
  return dx_TN;
}

LinearAndRows linear_and_rows(const at::Tensor& x_TN, const at::Tensor& weight_MN) {
  check_rows("linear_and_rows", x_TN, weight_MN);
  const bool passes_gradient = at::GradMode::is_enabled() && x_TN.requires_grad();
  if (!passes_gradient) return {ops::linear(x_TN, weight_MN), x_TN};
  const auto out = LinearAndRowsFunction::apply(x_TN.contiguous(), weight_MN.contiguous());
  return {out[0], out[1]};
}

at::Tensor add_linear(at::Tensor base_TM, const at::Tensor& x_TN, const at::Tensor& weight_MN) {
  check_rows("add_linear", x_TN, weight_MN);
  if (base_TM.dim() != 2 || base_TM.size(0) != x_TN.size(0) || base_TM.size(1) != weight_MN.size(0) ||
      base_TM.scalar_type() != x_TN.scalar_type())
    fail("[add_linear] base must be {} [{}, {}], got {} {}", c10::toString(x_TN.scalar_type()), x_TN.size(0), weight_MN.size(0),
         c10::toString(base_TM.scalar_type()), shape_of(base_TM));
  const auto rows_TN = x_TN.contiguous(), weight = weight_MN.contiguous();
  if (!wants_gradient(x_TN, weight_MN, base_TM)) {
    if (const auto y_TM = cuda::linear(rows_TN, weight, {})) return base_TM.add_(*y_TM);
  }
  return AddLinearFunction::apply(std::move(base_TM), rows_TN, weight);
}

}  // namespace scatterlm::ops

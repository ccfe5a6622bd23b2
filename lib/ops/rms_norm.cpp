#include "lib/ops/rms_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lib/ops/accumulate_type.h"
#include "lib/ops/shape.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

class RmsNormFunction : public torch::autograd::Function<RmsNormFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, double eps) {
    auto y = at::empty_like(x);
    auto rstd_N = at::empty({x.size(0)}, x.options().dtype(accumulate_type(x)));
    cpu::rms_norm_fwd(x, weight, eps, y, rstd_N);
    ctx->save_for_backward({x, weight, rstd_N});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &rstd_N = saved[2], dy = grads[0].contiguous();
    auto dx = at::empty_like(x);
    at::Tensor dweight;
    cpu::rms_norm_bwd(dy, x, weight, rstd_N, dx, dweight);
    return {dx, dweight, {}};
  }
};

void check_norm(const at::Tensor& x, const at::Tensor& weight) {
  if (x.dim() < 1) fail("[rms_norm] x must be [..., D], got a scalar");
  if (weight.dim() != 1 || weight.size(0) != x.size(-1))
    fail("[rms_norm] weight must be [D={}], got {}", x.size(-1), shape_of(weight));
  if (weight.scalar_type() != x.scalar_type())
    fail("[rms_norm] weight must be {} as x, got {}", c10::toString(x.scalar_type()), c10::toString(weight.scalar_type()));
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  check_norm(x, weight);
  if (auto result = cuda::add_rms_norm(x, std::nullopt, weight, eps)) return result->y;
  if (!x.is_cpu()) return at::rms_norm(x, weight.sizes(), weight, eps);
  return RmsNormFunction::apply(x.reshape({-1, x.size(-1)}).contiguous(), weight.contiguous(), eps).view(x.sizes());
}

AddedAndNormed add_rms_norm(const at::Tensor& x, const std::optional<at::Tensor>& branch, const at::Tensor& weight,
                            double eps) {
  check_norm(x, weight);
  if (branch && (branch->sizes() != x.sizes() || branch->scalar_type() != x.scalar_type()))
    fail("[add_rms_norm] branch must be {} {} as x, got {} {}", c10::toString(x.scalar_type()), shape_of(x),
         c10::toString(branch->scalar_type()), shape_of(*branch));
  if (auto result = cuda::add_rms_norm(x, branch, weight, eps)) return *result;
  const auto sum = branch ? x + *branch : x;
  return {sum, rms_norm(sum, weight, eps)};
}

}  // namespace scatterlm::ops

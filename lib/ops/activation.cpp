#include "lib/ops/activation.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lib/ops/shape.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

class ActivationFunction : public torch::autograd::Function<ActivationFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& h, int64_t kind) {
    ctx->save_for_backward({h});
    ctx->saved_data["kind"] = kind;
    return activation_fwd(h, static_cast<Activation>(kind));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto kind = static_cast<Activation>(ctx->saved_data["kind"].toInt());
    return {activation_bwd(grads[0].contiguous(), ctx->get_saved_variables()[0], kind), {}};
  }
};

}  // namespace

at::Tensor activation_fwd(const at::Tensor& h, Activation kind) {
  if (auto a = cuda::activation_fwd(h, kind)) return *a;
  return h.is_cpu() ? cpu::activation_fwd(h, kind) : ref::activation(h, kind);
}

at::Tensor activation_bwd(const at::Tensor& da, const at::Tensor& h, Activation kind) {
  if (auto dh = cuda::activation_bwd(da, h, kind)) return *dh;
  return h.is_cpu() ? cpu::activation_bwd(da, h, kind) : ref::activation_bwd(da, h, kind);
}

GatedActivationGrad gated_activation_bwd(const at::Tensor& da_ungated, const at::Tensor& h, const at::Tensor& gates_R,
                                         Activation kind) {
  if (h.is_cpu()) return cpu::gated_activation_bwd(da_ungated, h, gates_R, kind);
  const auto a = activation_fwd(h, kind);
  const auto gates_R1 = gates_R.unsqueeze(1);
  return {.dh = activation_bwd((da_ungated * gates_R1).to(h.scalar_type()), h, kind),
          .a_gated = (a * gates_R1).to(h.scalar_type()),
          .dgates = (da_ungated.to(gates_R.scalar_type()) * a).sum(1)};
}

at::Tensor activation(const at::Tensor& h, Activation kind) {
  if (h.dim() < 1 || (is_gated(kind) && h.size(-1) % 2 != 0))
    fail("[activation] a gated pre-activation must be [..., 2F], got {}", shape_of(h));
  const auto rows = h.reshape({-1, h.size(-1)}).contiguous();
  auto shape = h.sizes().vec();
  if (is_gated(kind)) shape.back() /= 2;
  return ActivationFunction::apply(rows, static_cast<int64_t>(kind)).view(shape);
}

}  // namespace scatterlm::ops

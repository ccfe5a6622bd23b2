#include "lib/ops/router.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lib/ops/gemm.h"
#include "lib/ops/linear.h"
#include "lib/ops/router_scores.h"
#include "lib/ops/shape.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

void check(const at::Tensor& x_TD, const at::Tensor& weight_ED, const std::optional<at::Tensor>& bias_E,
           const RouterOptions& options) {
  if (x_TD.dim() != 2 || weight_ED.dim() != 2 || weight_ED.size(1) != x_TD.size(1))
    fail("[router] x and weight must be [T, D] and [E, D], got {} and {}", shape_of(x_TD), shape_of(weight_ED));
  const int64_t num_experts = weight_ED.size(0), top_k = options.num_experts_per_tok;
  if (top_k < 1 || top_k > num_experts) fail("[router] num_experts_per_tok must be in 1..E={}, got {}", num_experts, top_k);
  if (options.topk_before_softmax && options.score != RouterScore::kSoftmax)
    fail("[router] topk_before_softmax needs softmax scores");
  if (bias_E && (bias_E->dim() != 1 || bias_E->size(0) != num_experts))
    fail("[router] bias must be [E={}], got {}", num_experts, shape_of(*bias_E));
}

/// z = x W^T in fp32, and x for its other readers. Backward keeps x as it is, not widened, and multiplies with dz in the type
/// of x, as any linear layer.
class LogitsFunction : public torch::autograd::Function<LogitsFunction> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_TD,
                                                const at::Tensor& weight_ED) {
    ctx->save_for_backward({x_TD, weight_ED});
    ctx->set_materialize_grads(false);
    return {wide_gemm(x_TD, weight_ED.t()), x_TD};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    if (!grads[0].defined()) return {grads[1], {}};
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x_TD = saved[0], &weight_ED = saved[1], dz_TE = grads[0].to(x_TD.scalar_type()).contiguous();
    at::Tensor dx_TD, dweight_ED;
    if (ctx->needs_input_grad(0)) dx_TD = rows_gradient(grads[1], dz_TE, weight_ED);
    if (ctx->needs_input_grad(1)) gemm(dweight_ED = at::empty_like(weight_ED), dz_TE.t(), x_TD);
    return {dx_TD, dweight_ED};
  }
};

}  // namespace

RouterOutput router(const at::Tensor& x_TD, const at::Tensor& weight_ED, const std::optional<at::Tensor>& bias_E,
                    const RouterOptions& options) {
  check(x_TD, weight_ED, bias_E, options);
  const auto x = x_TD.contiguous(), weight = weight_ED.contiguous();
  const bool wants_gradient = at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad());
  if (!wants_gradient) {
    if (auto out = cuda::router(x, weight, bias_E, options)) {
      out->x_TD = x;
      return *out;
    }
  }
  const auto logits_and_x = LogitsFunction::apply(x, weight);
  auto out = router_scores(logits_and_x[0], bias_E, options);
  out.x_TD = x.requires_grad() ? logits_and_x[1] : x;
  return out;
}

at::Tensor load_balance_loss(const at::Tensor& prob_sum_E, const at::Tensor& load_E, double num_tokens) {
  if (load_E.sizes() != prob_sum_E.sizes())
    fail("[load_balance_loss] load must be {} as prob_sum, got {}", shape_of(prob_sum_E), shape_of(load_E));
  return (prob_sum_E * load_E.detach()).sum() / num_tokens;
}

}  // namespace scatterlm::ops

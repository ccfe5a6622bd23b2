#include "lib/ops/moe_mlp.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lib/ops/accumulate_type.h"
#include "lib/ops/expert_bias.h"
#include "lib/ops/gather_sum.h"
#include "lib/ops/grouped_gemm.h"
#include "lib/ops/same_device.h"
#include "lib/ops/shape.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

/// Built of other ops, for CPU tensors and for what no kernel takes.
/// Formulas of backward, for row m of token t and expert e with gate s (Guo et al., arXiv 2512.14080, section 3):
///   dA' = dO[t] W2[e]     dS = <dA', A>     dH = act'(H) s dA'     dX[t] = sum over slots of dH W1[e]
///   dW2[e] = sum over rows of dO[t]^T (s A)       dW1[e] = sum over rows of dH^T X[t]
/// With biases  db2[e] = sum over rows of s dO[t]     db1[e] = sum over rows of dH     dS gets <dO[t], b2[e]> more.
class MoeMlpFunction : public torch::autograd::Function<MoeMlpFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_TD, const at::Tensor& w1,
                            const at::Tensor& w2, const at::Tensor& gates, const std::optional<at::Tensor>& b1,
                            const std::optional<at::Tensor>& b2, const Routing& routing, int64_t kind) {
    auto h = grouped_gemm_fwd(gather_rows(x_TD, routing.tokens_R, 1), w1, routing.offsets_E1);
    if (b1) h += expert_bias_rows(*b1, routing.offsets_E1, h.size(0));
    auto y_RD = grouped_gemm_fwd(activation_fwd(h, static_cast<Activation>(kind)), w2, routing.offsets_E1);
    if (b2) y_RD += expert_bias_rows(*b2, routing.offsets_E1, y_RD.size(0));
    ctx->save_for_backward({x_TD, h, w1, w2, gates, routing.sorted_R, routing.tokens_R, routing.inverse_R, routing.offsets_E1,
                            routing.token_offsets_T1, b2.value_or(at::Tensor())});
    ctx->saved_data["biased_up"] = b1.has_value();
    ctx->saved_data["kind"] = kind;
    return gather_sum(y_RD, routing.inverse_R, {gates.size(-1), routing.token_offsets_T1}, gates);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x_TD = saved[0], &h = saved[1], &w1 = saved[2], &w2 = saved[3], &gates = saved[4], &sorted_R = saved[5],
                     &tokens_R = saved[6], &inverse_R = saved[7], &offsets_E1 = saved[8], &b2 = saved[10];
    const TokenSlots slots(gates.size(-1), saved[9]);
    const auto kind = static_cast<Activation>(ctx->saved_data["kind"].toInt());

    const auto do_RD = gather_rows(grads[0].contiguous(), tokens_R, 1);
    const auto gates_R = gather_rows(gates.reshape({-1, 1}), sorted_R, 1).flatten();
    auto da = gated_activation_bwd(grouped_gemm_dgrad(do_RD, w2, offsets_E1), h, gates_R, kind);
    const auto dw2 = grouped_gemm_wgrad(do_RD, da.a_gated, offsets_E1);
    const auto dw1 = grouped_gemm_wgrad(da.dh, gather_rows(x_TD, tokens_R, 1), offsets_E1);
    const auto dx_TD = gather_sum(grouped_gemm_dgrad(da.dh, w1, offsets_E1), inverse_R, slots);
    at::Tensor db1, db2;
    if (ctx->saved_data["biased_up"].toBool()) db1 = expert_bias_grad(da.dh, at::ones_like(gates_R), offsets_E1);
    if (b2.defined()) {
      db2 = expert_bias_grad(do_RD, gates_R, offsets_E1);
      const auto b2_RD = expert_bias_rows(b2, offsets_E1, do_RD.size(0));
      da.dgates += (do_RD.to(gates.scalar_type()) * b2_RD).sum(1);
    }
    const auto dgates = gather_rows(da.dgates.unsqueeze(1), inverse_R, 1).view(gates.sizes());
    return {dx_TD, dw1, dw2, dgates, db1, db2, {}, {}};
  }
};

void check(const at::Tensor& x_TD, const at::Tensor& w1, const at::Tensor& w2, const at::Tensor& gates, const Routing& routing,
           Activation kind) {
  if (x_TD.dim() != 2 || x_TD.size(0) != routing.num_tokens)
    fail("[moe_mlp] x must be [T={}, D], got {}", routing.num_tokens, shape_of(x_TD));
  const int64_t num_experts = routing.num_experts, width = w2.size(-1), up = is_gated(kind) ? 2 * width : width;
  if (w2.dim() != 3 || w2.size(0) != num_experts || w2.size(1) != x_TD.size(1))
    fail("[moe_mlp] w2 must be [E={}, D={}, F], got {}", num_experts, x_TD.size(1), shape_of(w2));
  if (w1.dim() != 3 || w1.size(0) != num_experts || w1.size(1) != up || w1.size(2) != x_TD.size(1))
    fail("[moe_mlp] w1 must be [E={}, {}={}, D={}], got {}", num_experts, is_gated(kind) ? "2F" : "F", up, x_TD.size(1),
         shape_of(w1));
  if (routing.token_offsets_T1.defined()) {
    if (gates.sizes() != routing.sorted_R.sizes())
      fail("[moe_mlp] gates must be [R={}] after token rounding, got {}", routing.sorted_R.size(0), shape_of(gates));
  } else if (gates.dim() != 2 || gates.size(0) != routing.num_tokens || gates.size(1) != routing.top_k) {
    fail("[moe_mlp] gates must be [T={}, K={}], got {}", routing.num_tokens, routing.top_k, shape_of(gates));
  }
  if (gates.scalar_type() != accumulate_type(x_TD))
    fail("[moe_mlp] gates must be float32 (float64 where x is), got {}", c10::toString(gates.scalar_type()));
  if (w1.scalar_type() != x_TD.scalar_type() || w2.scalar_type() != x_TD.scalar_type())
    fail("[moe_mlp] weights must be {} as x, got {} and {}", c10::toString(x_TD.scalar_type()), c10::toString(w1.scalar_type()),
         c10::toString(w2.scalar_type()));
  const auto here = [&](const char* name, const at::Tensor& input) { check_same_device("moe_mlp", x_TD, name, input); };
  here("w1", w1);
  here("w2", w2);
  here("gates", gates);
  here("routing", routing.sorted_R);
}

void check_bias(const char* name, const std::optional<at::Tensor>& bias, const char* width, const at::Tensor& weight) {
  if (!bias) return;
  check_same_device("moe_mlp", weight, name, *bias);
  if (bias->dim() != 2 || bias->size(0) != weight.size(0) || bias->size(1) != weight.size(1))
    fail("[moe_mlp] {} must be [E={}, {}={}], got {}", name, weight.size(0), width, weight.size(1), shape_of(*bias));
  if (bias->scalar_type() != weight.scalar_type())
    fail("[moe_mlp] {} must be {} as the weights, got {}", name, c10::toString(weight.scalar_type()),
         c10::toString(bias->scalar_type()));
}

}  // namespace

at::Tensor moe_mlp(const at::Tensor& x_TD, const at::Tensor& w1, const at::Tensor& w2, const at::Tensor& gates,
                   const Routing& routing, Activation kind, const MoeMlpBias& bias) {
  check(x_TD, w1, w2, gates, routing, kind);
  check_bias("b1", bias.b1, is_gated(kind) ? "2F" : "F", w1);
  check_bias("b2", bias.b2, "D", w2);
  const auto rows_TD = x_TD.contiguous(), weights = gates.contiguous();
  if (auto out_TD = cuda::moe_mlp(rows_TD, w1, w2, weights, routing, kind, bias)) return *out_TD;
  return MoeMlpFunction::apply(rows_TD, w1, w2, weights, bias.b1, bias.b2, routing, static_cast<int64_t>(kind));
}

}  // namespace scatterlm::ops

#include "lib/ops/moe_mlp.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lib/ops/gather_sum.h"
#include "lib/ops/grouped_gemm.h"
#include "lib/ops/moe_mlp_kernels.h"
#include "lib/ops/shape.h"
#include "lib/ops/wide_type.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

/// Formulas of backward, for row m of token t and expert e with gate s (Guo et al., arXiv 2512.14080, section 3):
///   dA' = dO[t] W2[e]     dS = <dA', A>     dH = act'(H) s dA'     dX[t] = sum over slots of dH W1[e]
///   dW2[e] = sum over rows of dO[t]^T (s A)       dW1[e] = sum over rows of dH^T X[t]
class MoeMlpFunction : public torch::autograd::Function<MoeMlpFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_TD, const at::Tensor& w1,
                            const at::Tensor& w2, const at::Tensor& gates_TK, const at::Tensor& sorted_R,
                            const at::Tensor& inverse_R, const at::Tensor& offsets_E1, int64_t kind) {
    const int64_t top_k = gates_TK.size(1);
    const auto h = grouped_gemm_fwd(gather_rows(x_TD, sorted_R, top_k), w1, offsets_E1);
    const auto y_RD = grouped_gemm_fwd(activation_fwd(h, static_cast<Activation>(kind)), w2, offsets_E1);
    ctx->save_for_backward({x_TD, h, w1, w2, gates_TK, sorted_R, inverse_R, offsets_E1});
    ctx->saved_data["kind"] = kind;
    return gather_sum(y_RD, inverse_R, top_k, gates_TK);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x_TD = saved[0], &h = saved[1], &w1 = saved[2], &w2 = saved[3], &gates_TK = saved[4],
                     &sorted_R = saved[5], &inverse_R = saved[6], &offsets_E1 = saved[7];
    const auto kind = static_cast<Activation>(ctx->saved_data["kind"].toInt());
    const int64_t top_k = gates_TK.size(1);

    const auto do_RD = gather_rows(grads[0].contiguous(), sorted_R, top_k);
    const auto gates_R = gather_rows(gates_TK.reshape({-1, 1}), sorted_R, 1).flatten();
    const auto da = gated_activation_bwd(grouped_gemm_dgrad(do_RD, w2, offsets_E1), h, gates_R, kind);
    const auto dw2 = grouped_gemm_wgrad(do_RD, da.a_gated, offsets_E1);
    const auto dw1 = grouped_gemm_wgrad(da.dh, gather_rows(x_TD, sorted_R, top_k), offsets_E1);
    const auto dx_TD = gather_sum(grouped_gemm_dgrad(da.dh, w1, offsets_E1), inverse_R, top_k);
    const auto dgates_TK = gather_rows(da.dgates.unsqueeze(1), inverse_R, 1).view(gates_TK.sizes());
    return {dx_TD, dw1, dw2, dgates_TK, {}, {}, {}, {}};
  }
};

void check(const at::Tensor& x_TD, const at::Tensor& w1, const at::Tensor& w2, const at::Tensor& gates_TK,
           const Routing& routing, Activation kind) {
  if (x_TD.dim() != 2 || x_TD.size(0) != routing.num_tokens)
    fail("[moe_mlp] x must be [T={}, D], got {}", routing.num_tokens, shape_of(x_TD));
  const int64_t num_experts = routing.num_experts, width = w2.size(-1), up = is_gated(kind) ? 2 * width : width;
  if (w2.dim() != 3 || w2.size(0) != num_experts || w2.size(1) != x_TD.size(1))
    fail("[moe_mlp] w2 must be [E={}, D={}, F], got {}", num_experts, x_TD.size(1), shape_of(w2));
  if (w1.dim() != 3 || w1.size(0) != num_experts || w1.size(1) != up || w1.size(2) != x_TD.size(1))
    fail("[moe_mlp] w1 must be [E={}, {}={}, D={}], got {}", num_experts, is_gated(kind) ? "2F" : "F", up, x_TD.size(1),
         shape_of(w1));
  if (gates_TK.dim() != 2 || gates_TK.size(0) != routing.num_tokens || gates_TK.size(1) != routing.top_k)
    fail("[moe_mlp] gates must be [T={}, K={}], got {}", routing.num_tokens, routing.top_k, shape_of(gates_TK));
  if (gates_TK.scalar_type() != wide_type(x_TD))
    fail("[moe_mlp] gates must be float32 (float64 where x is), got {}", c10::toString(gates_TK.scalar_type()));
  if (w1.scalar_type() != x_TD.scalar_type() || w2.scalar_type() != x_TD.scalar_type())
    fail("[moe_mlp] weights must be {} as x, got {} and {}", c10::toString(x_TD.scalar_type()), c10::toString(w1.scalar_type()),
         c10::toString(w2.scalar_type()));
}

}  // namespace

at::Tensor moe_mlp(const at::Tensor& x_TD, const at::Tensor& w1, const at::Tensor& w2, const at::Tensor& gates_TK,
                   const Routing& routing, Activation kind) {
  check(x_TD, w1, w2, gates_TK, routing, kind);
#ifdef SCATTERLM_KERNELS
  if (kernels_take_moe_mlp(x_TD, w1, w2, routing)) return moe_mlp_on_kernels(x_TD, w1, w2, gates_TK, routing, kind);
#endif
  return MoeMlpFunction::apply(x_TD.contiguous(), w1, w2, gates_TK.contiguous(), routing.sorted_R, routing.inverse_R,
                               routing.offsets_E1, static_cast<int64_t>(kind));
}

}  // namespace scatterlm::ops

#include "lib/ops/moe_mlp_kernels.h"

#ifdef SCATTERLM_KERNELS
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "kernels/expert_bias.h"
#include "kernels/gather_sum.h"
#include "lib/ops/expert_gemms.h"
#include "lib/ops/gather_sum.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

/// Formulas in moe_mlp.cpp. The pre-activation is kept outside of the saved variables, so that backward can overwrite and free
/// it.
class KernelMoeMlp : public torch::autograd::Function<KernelMoeMlp> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_TD, const at::Tensor& w1,
                            const at::Tensor& w2, const at::Tensor& gates_TK, const std::optional<at::Tensor>& b1,
                            const std::optional<at::Tensor>& b2, const at::Tensor& sorted_R, const at::Tensor& tokens_R,
                            const at::Tensor& inverse_R, const at::Tensor& offsets_E1, const at::Tensor& tiles_E3,
                            const TokenSlots& slots, int64_t kind, bool keeps_h) {
    const int64_t rows = tokens_R.size(0), width = w2.size(2);
    const ExpertGemms gemms(x_TD, offsets_E1, tiles_E3, rows);
    const auto* tokens = tokens_R.const_data_ptr<int32_t>();
    auto h = at::empty({rows, w1.size(1)}, x_TD.options()), act_RF = at::empty({rows, width}, x_TD.options());
    auto up = gemms.times(x_TD, tokens, w1, width), down = gemms.times(act_RF, nullptr, w2, x_TD.size(1));
    if (b1) up.bias = b1->const_data_ptr();
    if (b2) down.bias = b2->const_data_ptr();
    kernels::grouped_gemm_activation_fwd(up, static_cast<kernels::Activation>(kind), h.mutable_data_ptr(),
                                         act_RF.mutable_data_ptr(), gemms.stream);
    ctx->save_for_backward({x_TD, w1, w2, gates_TK, sorted_R, tokens_R, inverse_R, offsets_E1, tiles_E3, slots.offsets_T1,
                            b1.value_or(at::Tensor()), b2.value_or(at::Tensor())});
    ctx->saved_data["kind"] = kind;
    if (keeps_h) ctx->saved_data["h"] = h;
    h.reset();  // otherwise its memory is free for the rows of the down projection
    auto y_RD = at::empty({rows, x_TD.size(1)}, x_TD.options());
    kernels::grouped_gemm_fwd(down, y_RD.mutable_data_ptr(), gemms.stream);
    return gather_sum(y_RD, inverse_R, slots, gates_TK);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    if (!ctx->saved_data.count("h")) fail("[moe_mlp] backward runs once: it wrote the gradient over the pre-activation");
    auto h = ctx->saved_data["h"].toTensor();
    ctx->saved_data.erase("h");
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x_TD = saved[0], &w1 = saved[1], &w2 = saved[2], &gates_TK = saved[3], &sorted_R = saved[4],
                     &tokens_R = saved[5], &inverse_R = saved[6], &b1 = saved[10], &b2 = saved[11];
    const int64_t rows = tokens_R.size(0), width = w2.size(2);
    const ExpertGemms gemms(x_TD, saved[7], saved[8], rows);
    const auto* tokens = tokens_R.const_data_ptr<int32_t>();
    const auto do_TD = grads[0].contiguous();

    auto act_gated_RF = at::empty({rows, width}, x_TD.options());
    const auto partial = at::empty({rows, kernels::dgates_partials(width, gemms.capability)}, gates_TK.options());
    kernels::grouped_gemm_activation_bwd(
        gemms.times(do_TD, tokens, w2, width), static_cast<kernels::Activation>(ctx->saved_data["kind"].toInt()),
        {h.mutable_data_ptr(), act_gated_RF.mutable_data_ptr(), gates_TK.const_data_ptr<float>(),
         sorted_R.const_data_ptr<int32_t>(), partial.mutable_data_ptr<float>()},
        gemms.stream);
    const auto dots_R = b2.defined() ? bias_dots(gemms, do_TD, tokens, b2) : at::Tensor();
    auto dgates_TK = at::empty_like(gates_TK);
    kernels::sum_dgates(
        {partial.const_data_ptr<float>(), inverse_R.const_data_ptr<int32_t>(), dgates_TK.mutable_data_ptr<float>(), rows,
         partial.size(1), dots_R.defined() ? dots_R.const_data_ptr<float>() : nullptr},
        gemms.stream);
    at::Tensor dw1, dw2, db1, db2, dx_TD;
    const size_t b1_edge = 4, b2_edge = b1_edge + (b1.defined() ? 1 : 0);  // LibTorch gives an absent optional no number
    if (b1.defined() && ctx->needs_input_grad(b1_edge)) db1 = gemms.bias_gradient(b1, {.dy = h.const_data_ptr()});
    if (b2.defined() && ctx->needs_input_grad(b2_edge))
      db2 = gemms.bias_gradient(b2, {.dy = do_TD.const_data_ptr(),
                                     .dy_rows_R = tokens,
                                     .gates = gates_TK.const_data_ptr<float>(),
                                     .sorted_R = sorted_R.const_data_ptr<int32_t>()});
    if (ctx->needs_input_grad(2))
      dw2 = gemms.weight_gradient(w2, {.a = do_TD.const_data_ptr(), .a_rows_R = tokens, .b = act_gated_RF.const_data_ptr()});
    act_gated_RF.reset();
    if (ctx->needs_input_grad(1))
      dw1 = gemms.weight_gradient(w1, {.a = h.const_data_ptr(), .b = x_TD.const_data_ptr(), .b_rows_R = tokens});
    if (ctx->needs_input_grad(0)) {
      const auto dx_RD = at::empty({rows, x_TD.size(1)}, x_TD.options());
      kernels::grouped_gemm_dgrad(gemms.times(h, nullptr, w1, x_TD.size(1)), dx_RD.mutable_data_ptr(), gemms.stream);
      h.reset();
      dx_TD = gather_sum(dx_RD, inverse_R, {gates_TK.size(-1), saved[9]});
    }
    return {dx_TD, dw1, dw2, dgates_TK, db1, db2, {}, {}, {}, {}, {}, {}, {}, {}};
  }

 private:
  /// [R]: <dO[t], b2[e]>.
  static at::Tensor bias_dots(const ExpertGemms& gemms, const at::Tensor& do_TD, const int32_t* tokens_R,
                              const at::Tensor& b2) {
    auto dots_R = at::empty({gemms.experts.num_rows}, do_TD.options().dtype(at::kFloat));
    kernels::expert_bias_dots({.experts = gemms.experts,
                               .dy = do_TD.const_data_ptr(),
                               .dy_rows_R = tokens_R,
                               .bias = b2.const_data_ptr(),
                               .n = do_TD.size(1),
                               .dots_R = dots_R.mutable_data_ptr<float>()},
                              gemms.stream);
    return dots_R;
  }
};

}  // namespace

bool kernels_take_moe_mlp(const at::Tensor& x_TD, const at::Tensor& w1, const at::Tensor& w2, const Routing& routing,
                          const MoeMlpBias& bias) {
  return kernels_take(x_TD) && kernels_take(w1) && kernels_take(w2) && routing.tiles_E3.defined() &&
         (!bias.b1 || kernels_take(*bias.b1)) && (!bias.b2 || kernels_take(*bias.b2));
}

at::Tensor moe_mlp_on_kernels(const at::Tensor& x_TD, const at::Tensor& w1, const at::Tensor& w2, const at::Tensor& gates_TK,
                              const Routing& routing, Activation kind, const MoeMlpBias& bias) {
  const c10::DeviceGuard guard(x_TD.device());
  const bool keeps_h = torch::autograd::compute_requires_grad(x_TD, w1, w2, gates_TK, bias.b1, bias.b2);
  return KernelMoeMlp::apply(x_TD, w1, w2, gates_TK, bias.b1, bias.b2, routing.sorted_R, routing.tokens_R, routing.inverse_R,
                             routing.offsets_E1, routing.tiles_E3, TokenSlots(gates_TK.size(-1), routing.token_offsets_T1),
                             static_cast<int64_t>(kind), keeps_h);
}

}  // namespace scatterlm::ops
#endif

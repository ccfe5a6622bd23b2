#include "lib/ops/moe_mlp_hopper.h"

#ifdef SCATTERLM_KERNELS
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/gather_sum.h"
#include "kernels/grouped_gemm.h"
#include "lib/ops/device.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

/// What every kernel of the layer is told: the routing on the device, and where to run.
struct Layer {
  Layer(const at::Tensor& x_TD, const at::Tensor& tokens_R, const at::Tensor& offsets_E1, const at::Tensor& tile_offsets_E1)
      : rows{offsets_E1.const_data_ptr<int32_t>(), tile_offsets_E1.const_data_ptr<int32_t>(), offsets_E1.size(0) - 1,
             tokens_R.size(0)},
        tokens_R(tokens_R.const_data_ptr<int32_t>()),
        sms(num_sms(x_TD)),
        stream(current_stream(x_TD)) {}

  /// Rows of a [R, k] in expert order times b.
  kernels::GroupedGemmArgs contiguous(const at::Tensor& a, const at::Tensor& b, int64_t n) const {
    return {rows, a.const_data_ptr(), nullptr, b.const_data_ptr(), n, a.size(1), sms};
  }
  /// Rows of a [T, k] in token order times b.
  kernels::GroupedGemmArgs gathered(const at::Tensor& a, const at::Tensor& b, int64_t n) const {
    return {rows, a.const_data_ptr(), tokens_R, b.const_data_ptr(), n, a.size(1), sms};
  }
  /// y [R, N] in expert order -> [T, N].
  at::Tensor sum_slots(const at::Tensor& y_RN, const at::Tensor& inverse_R, int64_t top_k, const float* gates) const {
    auto out = at::empty({y_RN.size(0) / top_k, y_RN.size(1)}, y_RN.options());
    kernels::gather_sum({y_RN.const_data_ptr(), inverse_R.const_data_ptr<int32_t>(), gates, out.mutable_data_ptr(), out.size(0),
                         top_k, out.size(1)},
                        stream);
    return out;
  }

  kernels::ExpertRows rows;
  const int32_t* tokens_R;
  int sms;
  cudaStream_t stream;
};

bool accumulates_in_place(const at::Tensor& weight) {
  return weight.is_leaf() && weight.grad().defined() && weight.grad().scalar_type() == at::kFloat &&
         weight.grad().is_contiguous();
}

/// dW of `weight` [E, m, n]: undefined if it went straight into the weight's gradient.
at::Tensor weight_gradient(const at::Tensor& weight, kernels::WgradArgs args, const Layer& layer) {
  args.experts = layer.rows;
  args.num_sms = layer.sms;
  args.m = weight.size(1);
  args.n = weight.size(2);
  if (!accumulates_in_place(weight)) {
    auto gradient = at::empty_like(weight);
    args.dw = gradient.mutable_data_ptr();
    args.output = kernels::WgradOutput::kBf16;
    args.update = kernels::WgradUpdate::kStore;
    kernels::grouped_gemm_wgrad(args, layer.stream);
    return gradient;
  }
  args.dw = weight.grad().mutable_data_ptr();
  args.output = kernels::WgradOutput::kFp32;
  args.update = kernels::WgradUpdate::kAdd;
  kernels::grouped_gemm_wgrad(args, layer.stream);
  return {};  // the engine calls the weight's post-accumulate hook all the same
}

/// Formulas in moe_mlp.cpp. The pre-activation is kept outside of the saved variables, so that backward can overwrite and free
/// it.
class HopperMoeMlp : public torch::autograd::Function<HopperMoeMlp> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_TD, const at::Tensor& w1,
                            const at::Tensor& w2, const at::Tensor& gates_TK, const at::Tensor& sorted_R,
                            const at::Tensor& tokens_R, const at::Tensor& inverse_R, const at::Tensor& offsets_E1,
                            const at::Tensor& tile_offsets_E1, int64_t kind) {
    const Layer layer(x_TD, tokens_R, offsets_E1, tile_offsets_E1);
    const int64_t rows = tokens_R.size(0), width = w2.size(2);
    auto h = at::empty({rows, w1.size(1)}, x_TD.options()), act_RF = at::empty({rows, width}, x_TD.options());
    kernels::grouped_gemm_activation_fwd(layer.gathered(x_TD, w1, width), static_cast<kernels::Activation>(kind),
                                         h.mutable_data_ptr(), act_RF.mutable_data_ptr(), layer.stream);
    ctx->save_for_backward({x_TD, w1, w2, gates_TK, sorted_R, tokens_R, inverse_R, offsets_E1, tile_offsets_E1});
    ctx->saved_data["kind"] = kind;
    ctx->saved_data["h"] = std::move(h);
    auto y_RD = at::empty({rows, x_TD.size(1)}, x_TD.options());
    kernels::grouped_gemm_fwd(layer.contiguous(act_RF, w2, x_TD.size(1)), y_RD.mutable_data_ptr(), layer.stream);
    return layer.sum_slots(y_RD, inverse_R, gates_TK.size(1), gates_TK.const_data_ptr<float>());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    if (!ctx->saved_data.count("h")) fail("[moe_mlp] backward runs once: it wrote the gradient over the pre-activation");
    auto h = ctx->saved_data["h"].toTensor();
    ctx->saved_data.erase("h");
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x_TD = saved[0], &w1 = saved[1], &w2 = saved[2], &gates_TK = saved[3], &sorted_R = saved[4],
                     &tokens_R = saved[5], &inverse_R = saved[6];
    const Layer layer(x_TD, tokens_R, saved[7], saved[8]);
    const auto do_TD = grads[0].contiguous();
    const int64_t rows = tokens_R.size(0), width = w2.size(2);

    auto act_gated_RF = at::empty({rows, width}, x_TD.options());
    const auto partial = at::empty({rows, kernels::dgates_partials(width)}, gates_TK.options());
    kernels::grouped_gemm_activation_bwd(
        layer.gathered(do_TD, w2, width), static_cast<kernels::Activation>(ctx->saved_data["kind"].toInt()),
        {h.mutable_data_ptr(), act_gated_RF.mutable_data_ptr(), gates_TK.const_data_ptr<float>(),
         sorted_R.const_data_ptr<int32_t>(), partial.mutable_data_ptr<float>()},
        layer.stream);
    auto dgates_TK = at::empty_like(gates_TK);
    kernels::sum_dgates({partial.const_data_ptr<float>(), inverse_R.const_data_ptr<int32_t>(),
                         dgates_TK.mutable_data_ptr<float>(), rows, partial.size(1)},
                        layer.stream);
    at::Tensor dw1, dw2, dx_TD;
    if (ctx->needs_input_grad(2))
      dw2 = weight_gradient(w2, {.a = do_TD.const_data_ptr(), .a_rows_R = layer.tokens_R, .b = act_gated_RF.const_data_ptr()},
                            layer);
    act_gated_RF.reset();
    if (ctx->needs_input_grad(1))
      dw1 = weight_gradient(w1, {.a = h.const_data_ptr(), .b = x_TD.const_data_ptr(), .b_rows_R = layer.tokens_R}, layer);
    if (ctx->needs_input_grad(0)) {
      const auto dx_RD = at::empty({rows, x_TD.size(1)}, x_TD.options());
      kernels::grouped_gemm_dgrad(layer.contiguous(h, w1, x_TD.size(1)), dx_RD.mutable_data_ptr(), layer.stream);
      h.reset();
      dx_TD = layer.sum_slots(dx_RD, inverse_R, gates_TK.size(1), nullptr);
    }
    return {dx_TD, dw1, dw2, dgates_TK, {}, {}, {}, {}, {}, {}};
  }
};

bool aligned(const at::Tensor& x) { return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0 && x.is_contiguous(); }

}  // namespace

bool hopper_takes_moe_mlp(const at::Tensor& x_TD, const at::Tensor& w1, const at::Tensor& w2, const Routing& routing) {
  return is_hopper(x_TD) && x_TD.scalar_type() == at::kBFloat16 && routing.tile_offsets_E1.defined() && x_TD.size(1) % 8 == 0 &&
         w2.size(2) % 8 == 0 && aligned(x_TD) && aligned(w1) && aligned(w2);
}

at::Tensor moe_mlp_hopper(const at::Tensor& x_TD, const at::Tensor& w1, const at::Tensor& w2, const at::Tensor& gates_TK,
                          const Routing& routing, Activation kind) {
  return HopperMoeMlp::apply(x_TD.contiguous(), w1, w2, gates_TK.contiguous(), routing.sorted_R, routing.tokens_R,
                             routing.inverse_R, routing.offsets_E1, routing.tile_offsets_E1, static_cast<int64_t>(kind));
}

}  // namespace scatterlm::ops
#endif

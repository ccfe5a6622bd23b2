#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/gate_bwd.h"
#include "lib/ops/gather_sum.h"
#include "lib/ops/grouped_gemm_cuda.h"
#include "lib/ops/parallel_linear.h"
#include "lib/ops/routing_cuda.h"

namespace scatterlm::ops {
namespace {

/// Row lists of the kernels; nullptr stands for expert order.
struct Lists {
  Lists(const at::Tensor& x, const at::Tensor& sorted_R, const at::Tensor& tokens_R, bool tokens_in, bool tokens_out,
        bool gated)
      : slots(sorted_R.const_data_ptr<int32_t>()),
        tokens(tokens_R.const_data_ptr<int32_t>()),
        shared(tokens_in && x.size(0) != sorted_R.size(0)),
        in(!tokens_in ? nullptr : (shared ? tokens : slots)),
        out(gated ? tokens : (tokens_out ? slots : nullptr)) {}

  const int32_t *slots, *tokens;
  bool shared;         ///< a row of x serves all K slots of its token
  const int32_t* in;   ///< row of x for each row in expert order
  const int32_t* out;  ///< row of the result; with gates the token into which it is summed
};

/// With gates s, da' = dO W, dx = s da', ds = <da', x>, dW = sum of dO[t]^T (s x): no product is kept.
class ParallelLinearCudaFunction : public torch::autograd::Function<ParallelLinearCudaFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& gates_TK, const at::Tensor& sorted_R, const at::Tensor& tokens_R,
                            const at::Tensor& inverse_R, const at::Tensor& offsets_E1, const at::Tensor& tiles_E3,
                            bool tokens_in, bool tokens_out) {
    ctx->save_for_backward({x, weight, gates_TK.value_or(at::Tensor()), sorted_R, tokens_R, inverse_R, offsets_E1, tiles_E3});
    ctx->saved_data["tokens_in"] = tokens_in;
    ctx->saved_data["tokens_out"] = tokens_out;
    const int64_t rows = sorted_R.size(0), width = weight.size(1);
    const ExpertGemms gemms(x, offsets_E1, tiles_E3, rows);
    const Lists lists(x, sorted_R, tokens_R, tokens_in, tokens_out, gates_TK.has_value());
    auto y = at::empty({rows, width}, x.options());
    kernels::grouped_gemm_fwd({.product = gemms.times(x, lists.in, weight, width),
                               .c = y.mutable_data_ptr(),
                               .c_rows_R = gates_TK ? nullptr : lists.out},
                              gemms.stream);
    return gates_TK ? gather_sum(y, inverse_R, gates_TK->size(1), gates_TK) : y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &gates_TK = saved[2], &sorted_R = saved[3], &inverse_R = saved[5];
    const bool tokens_in = ctx->saved_data["tokens_in"].toBool(), gated = gates_TK.defined();
    const int64_t rows = sorted_R.size(0);
    const ExpertGemms gemms(x, saved[6], saved[7], rows);
    const Lists lists(x, sorted_R, saved[4], tokens_in, ctx->saved_data["tokens_out"].toBool(), gated);
    const auto dout = grads[0].contiguous();

    auto dx = at::empty({rows, weight.size(2)}, x.options());
    kernels::grouped_gemm_dgrad({.product = gemms.times(dout, lists.out, weight, weight.size(2)),
                                 .c = dx.mutable_data_ptr(),
                                 .c_rows_R = gated || lists.shared ? nullptr : lists.in},
                                gemms.stream);
    at::Tensor dgates_TK, dweight;
    if (gated) {
      dgates_TK = at::empty_like(gates_TK);
      const auto da = std::exchange(dx, at::empty_like(dx)), x_gated = at::empty_like(dx);
      kernels::gate_bwd({.da = da.const_data_ptr(),
                         .x = x.const_data_ptr(),
                         .x_rows_R = lists.in,
                         .sorted_R = lists.slots,
                         .gates = gates_TK.const_data_ptr<float>(),
                         .dx = dx.mutable_data_ptr(),
                         .dx_rows_R = lists.shared ? nullptr : lists.in,
                         .x_gated = x_gated.mutable_data_ptr(),
                         .dgates = dgates_TK.mutable_data_ptr<float>(),
                         .num_rows = rows,
                         .n = dx.size(1)},
                        gemms.stream);
      dweight =
          gemms.weight_gradient(weight, {.a = dout.const_data_ptr(), .a_rows_R = lists.out, .b = x_gated.const_data_ptr()});
    } else {
      dweight = gemms.weight_gradient(
          weight, {.a = dout.const_data_ptr(), .a_rows_R = lists.out, .b = x.const_data_ptr(), .b_rows_R = lists.in});
    }
    if (lists.shared) dx = gather_sum(dx, inverse_R, x.size(0) == 0 ? 1 : rows / x.size(0));
    return {dx, dweight, dgates_TK, {}, {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

std::optional<at::Tensor> cuda::parallel_linear(const at::Tensor& x, const at::Tensor& weight, const Routing& routing,
                                                RowOrder in_order, RowOrder out_order,
                                                const std::optional<at::Tensor>& gates_TK) {
  if (!kernels_take(x) || !kernels_take(weight) || weight.size(1) % 8 != 0 || !routing.tiles_E3.defined()) return {};
  const c10::DeviceGuard guard(x.device());
  return ParallelLinearCudaFunction::apply(x, weight, gates_TK, routing.sorted_R, routing.tokens_R, routing.inverse_R,
                                           routing.offsets_E1, tiles_for_stream(routing, current_stream(x)),
                                           in_order == RowOrder::kToken, out_order == RowOrder::kToken);
}

}  // namespace scatterlm::ops

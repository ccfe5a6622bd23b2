#include "lib/ops/parallel_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lib/ops/accumulate_type.h"
#include "lib/ops/gather_sum.h"
#include "lib/ops/grouped_gemm.h"
#include "lib/ops/same_device.h"
#include "lib/ops/shape.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

/// Built of other ops, for CPU tensors and for what no kernel takes.
/// The output with gates p needs no product of its own in backward: with dX' = dO W for the ungated rows, dp = <dX', x> and dx
/// = p dX'.
class ParallelLinearFunction : public torch::autograd::Function<ParallelLinearFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& gates_TK, const at::Tensor& sorted_R, const at::Tensor& inverse_R,
                            const at::Tensor& offsets_E1, bool tokens_in, bool tokens_out) {
    ctx->save_for_backward({x, weight, gates_TK.value_or(at::Tensor()), sorted_R, inverse_R, offsets_E1});
    ctx->saved_data["tokens_in"] = tokens_in;
    ctx->saved_data["tokens_out"] = tokens_out;
    const auto y_RN = grouped_gemm_fwd(tokens_in ? to_expert_order(x, sorted_R) : x, weight, offsets_E1);
    if (gates_TK) return gather_sum(y_RN, inverse_R, gates_TK->size(1), gates_TK);
    return tokens_out ? gather_rows(y_RN, inverse_R, 1) : y_RN;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &gates_TK = saved[2], &sorted_R = saved[3], &inverse_R = saved[4],
                     &offsets_E1 = saved[5];
    const bool tokens_in = ctx->saved_data["tokens_in"].toBool(), tokens_out = ctx->saved_data["tokens_out"].toBool();

    const auto dout = grads[0].contiguous();
    const auto dy_RN = tokens_out ? to_expert_order(dout, sorted_R) : dout;
    auto x_RN = tokens_in ? to_expert_order(x, sorted_R) : x;
    auto dx_RN = grouped_gemm_dgrad(dy_RN, weight, offsets_E1);
    at::Tensor dgates_TK;
    if (gates_TK.defined()) {
      const auto gates_R1 = gather_rows(gates_TK.reshape({-1, 1}), sorted_R, 1);
      const auto dgates_R1 = (dx_RN.to(gates_TK.scalar_type()) * x_RN).sum(1, /*keepdim=*/true);
      dgates_TK = gather_rows(dgates_R1, inverse_R, 1).view(gates_TK.sizes());
      dx_RN = (dx_RN * gates_R1).to(x.scalar_type());
      x_RN = (x_RN * gates_R1).to(x.scalar_type());
    }
    const auto dweight = grouped_gemm_wgrad(dy_RN, x_RN, offsets_E1);
    const auto dx = tokens_in ? gather_sum(dx_RN, inverse_R, slots_of_row(x, inverse_R)) : dx_RN;
    return {dx, dweight, dgates_TK, {}, {}, {}, {}, {}};
  }

 private:
  /// K for rows in token order, 1 for rows in slot order.
  static int64_t slots_of_row(const at::Tensor& x, const at::Tensor& sorted_R) {
    return x.size(0) == 0 ? 1 : sorted_R.size(0) / x.size(0);
  }

  static at::Tensor to_expert_order(const at::Tensor& x, const at::Tensor& sorted_R) {
    return gather_rows(x, sorted_R, slots_of_row(x, sorted_R));
  }
};

void check(const at::Tensor& x, const at::Tensor& weight, const Routing& routing, RowOrder in_order, RowOrder out_order,
           const std::optional<at::Tensor>& gates_TK) {
  constexpr const char* kOp = "parallel_linear";
  if (routing.token_offsets_T1.defined()) fail("[parallel_linear] takes no routing of token rounding: a token has K slots");
  const int64_t tokens = routing.num_tokens, rows = tokens * routing.top_k;
  const bool per_token = in_order == RowOrder::kToken && x.dim() == 2 && x.size(0) == tokens;
  if (x.dim() != 2 || (x.size(0) != rows && !per_token))
    fail("[parallel_linear] x must be [{}R={}, N_in], got {}",
         in_order == RowOrder::kToken ? fmt::format("T={} or ", tokens) : "", rows, shape_of(x));
  if (weight.dim() != 3 || weight.size(0) != routing.num_experts || weight.size(2) != x.size(1))
    fail("[parallel_linear] weight must be [E={}, N_out, N_in={}], got {}", routing.num_experts, x.size(1), shape_of(weight));
  if (weight.scalar_type() != x.scalar_type())
    fail("[parallel_linear] weight must be {} as x, got {}", c10::toString(x.scalar_type()),
         c10::toString(weight.scalar_type()));
  check_same_device(kOp, x, "weight", weight);
  check_same_device(kOp, x, "routing", routing.sorted_R);
  if (!gates_TK) return;
  check_same_device(kOp, x, "gates", *gates_TK);
  if (out_order != RowOrder::kToken) fail("[parallel_linear] gates need a result in token order");
  if (gates_TK->dim() != 2 || gates_TK->size(0) != tokens || gates_TK->size(1) != routing.top_k)
    fail("[parallel_linear] gates must be [T={}, K={}], got {}", tokens, routing.top_k, shape_of(*gates_TK));
  if (gates_TK->scalar_type() != accumulate_type(x))
    fail("[parallel_linear] gates must be float32 (float64 where x is), got {}", c10::toString(gates_TK->scalar_type()));
}

}  // namespace

at::Tensor parallel_linear(const at::Tensor& x, const at::Tensor& weight, const Routing& routing, RowOrder in_order,
                           RowOrder out_order, const std::optional<at::Tensor>& gates_TK) {
  check(x, weight, routing, in_order, out_order, gates_TK);
  const auto rows = x.contiguous();
  const auto gates = gates_TK ? std::optional(gates_TK->contiguous()) : std::nullopt;
  if (auto y = cuda::parallel_linear(rows, weight, routing, in_order, out_order, gates)) return *y;
  return ParallelLinearFunction::apply(rows, weight, gates, routing.sorted_R, routing.inverse_R, routing.offsets_E1,
                                       in_order == RowOrder::kToken, out_order == RowOrder::kToken);
}

}  // namespace scatterlm::ops

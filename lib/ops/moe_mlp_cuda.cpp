#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "kernels/expert_bias.h"
#include "kernels/gather_sum.h"
#include "lib/ops/grouped_gemm_cuda.h"
#include "lib/ops/moe_mlp.h"
#include "lib/ops/routing_cuda.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

/// [R]: <dO[t], b2[e]>.
at::Tensor bias_dots(const ExpertGemms& gemms, const at::Tensor& do_TD, const int32_t* tokens_R, const at::Tensor& b2) {
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

/// Rows in expert order summed for every token, see kernels/gather_sum.h; with `dgates` also those of the gates.
at::Tensor sum_rows(const ExpertGemms& gemms, const at::Tensor& y_RD, const Routing& routing, int64_t top_k, const float* gates,
                    const kernels::SumDgatesArgs* dgates = nullptr) {
  auto out_TD = at::empty({routing.num_tokens, y_RD.size(1)}, y_RD.options());
  const kernels::GatherSumArgs args{
      .y = y_RD.const_data_ptr(),
      .inverse_R = routing.inverse_R.const_data_ptr<int32_t>(),
      .gates = gates,
      .out = out_TD.mutable_data_ptr(),
      .num_tokens = routing.num_tokens,
      .top_k = top_k,
      .n = y_RD.size(1),
      .token_offsets_T1 = routing.token_offsets_T1.defined() ? routing.token_offsets_T1.const_data_ptr<int32_t>() : nullptr};
  if (dgates)
    kernels::gather_sum_with_dgates(args, *dgates, gemms.stream);
  else
    kernels::gather_sum(args, gemms.stream);
  return out_TD;
}

/// Backward; formulas in moe_mlp.cpp. A node itself, for an autograd::Function takes the host longer: it keeps what it saves in
/// a map of names and notes shapes of inputs and outputs.
struct MoeMlpBackward final : torch::autograd::Node {
  enum Input { kX, kW1, kW2, kGates, kB1, kB2, kNumInputs };  // edges to them, in this order

  variable_list apply(variable_list&& grads) override;
  void release_variables() override;
  std::string name() const override { return "MoeMlpBackward"; }

  std::array<SavedVariable, kNumInputs> saved;
  at::Tensor h;  ///< is overwritten, and freed as soon as nothing reads it
  Routing routing;
  Activation kind;
};

void MoeMlpBackward::release_variables() {
  const std::lock_guard lock(mutex_);
  for (auto& variable : saved) variable.reset_data();
  h.reset();
  routing = {};
}

variable_list MoeMlpBackward::apply(variable_list&& grads) {
  const std::lock_guard lock(mutex_);
  variable_list results(kNumInputs);
  if (!grads[0].defined()) return results;
  if (!h.defined()) fail("[moe_mlp] backward runs once: it wrote the gradient over the pre-activation");
  if (at::GradMode::is_enabled()) fail("[moe_mlp] has no second derivative on kernels: create_graph is not for it");
  auto dh = std::exchange(h, {});
  const auto x_TD = saved[kX].unpack(), w1 = saved[kW1].unpack(), w2 = saved[kW2].unpack(), gates = saved[kGates].unpack(),
             b1 = saved[kB1].unpack(), b2 = saved[kB2].unpack();
  const auto do_TD = grads[0].contiguous();
  const int64_t rows = routing.tokens_R.size(0), width = w2.size(2);
  const ExpertGemms gemms(x_TD, routing.offsets_E1, routing.tiles_E3, rows);
  const auto *tokens = routing.tokens_R.const_data_ptr<int32_t>(), *sorted = routing.sorted_R.const_data_ptr<int32_t>(),
             *inverse = routing.inverse_R.const_data_ptr<int32_t>();

  auto act_gated_RF = at::empty({rows, width}, x_TD.options());
  const auto partial = at::empty({rows, kernels::dgates_partials(width, gemms.capability)}, gates.options());
  kernels::grouped_gemm_activation_bwd({.product = gemms.times(do_TD, tokens, w2, width),
                                        .activation = kind,
                                        .h = dh.mutable_data_ptr(),
                                        .act_gated = act_gated_RF.mutable_data_ptr(),
                                        .gates = gates.const_data_ptr<float>(),
                                        .sorted_R = sorted,
                                        .dgates_partial = partial.mutable_data_ptr<float>()},
                                       gemms.stream);
  const bool wants_x = task_should_compute_output(kX);
  std::optional<kernels::SumDgatesArgs> dgates;
  at::Tensor dots_R;
  if (task_should_compute_output(kGates)) {
    if (b2.defined()) dots_R = bias_dots(gemms, do_TD, tokens, b2);
    results[kGates] = at::empty_like(gates);
    dgates = {.partial = partial.const_data_ptr<float>(),
              .inverse_R = inverse,
              .dgates = results[kGates].mutable_data_ptr<float>(),
              .num_rows = rows,
              .num_partials = partial.size(1),
              .dots_R = dots_R.defined() ? dots_R.const_data_ptr<float>() : nullptr};
    if (!wants_x) kernels::sum_dgates(*dgates, gemms.stream);
  }
  if (task_should_compute_output(kB1)) results[kB1] = gemms.bias_gradient(b1, {.dy = dh.const_data_ptr()});
  if (task_should_compute_output(kB2))
    results[kB2] = gemms.bias_gradient(
        b2, {.dy = do_TD.const_data_ptr(), .dy_rows_R = tokens, .gates = gates.const_data_ptr<float>(), .sorted_R = sorted});
  if (task_should_compute_output(kW2))
    results[kW2] =
        gemms.weight_gradient(w2, {.a = do_TD.const_data_ptr(), .a_rows_R = tokens, .b = act_gated_RF.const_data_ptr()});
  act_gated_RF.reset();
  if (task_should_compute_output(kW1))
    results[kW1] = gemms.weight_gradient(w1, {.a = dh.const_data_ptr(), .b = x_TD.const_data_ptr(), .b_rows_R = tokens});
  if (wants_x) {
    const auto dx_RD = at::empty({rows, x_TD.size(1)}, x_TD.options());
    kernels::grouped_gemm_dgrad({.product = gemms.times(dh, nullptr, w1, x_TD.size(1)), .c = dx_RD.mutable_data_ptr()},
                                gemms.stream);
    dh.reset();
    results[kX] = sum_rows(gemms, dx_RD, routing, gates.size(-1), nullptr, dgates ? &*dgates : nullptr);
  }
  return results;
}

}  // namespace

std::optional<at::Tensor> cuda::moe_mlp(const at::Tensor& x_TD, const at::Tensor& w1, const at::Tensor& w2,
                                        const at::Tensor& gates, const Routing& routing, Activation kind,
                                        const MoeMlpBias& bias) {
  if (!kernels_take(x_TD) || !kernels_take(w1) || !kernels_take(w2) || !routing.tiles_E3.defined() ||
      (bias.b1 && !kernels_take(*bias.b1)) || (bias.b2 && !kernels_take(*bias.b2)))
    return {};
  const c10::DeviceGuard guard(x_TD.device());
  const auto& [b1, b2] = bias;
  const int64_t rows = routing.tokens_R.size(0), width = w2.size(2);
  const auto tiles_E3 = tiles_for_stream(routing, current_stream(x_TD));
  const ExpertGemms gemms(x_TD, routing.offsets_E1, tiles_E3, rows);
  auto h = at::empty({rows, w1.size(1)}, x_TD.options()), act_RF = at::empty({rows, width}, x_TD.options());
  kernels::grouped_gemm_activation_fwd({.product = gemms.times(x_TD, routing.tokens_R.const_data_ptr<int32_t>(), w1, width),
                                        .activation = kind,
                                        .h = h.mutable_data_ptr(),
                                        .act = act_RF.mutable_data_ptr(),
                                        .bias = b1 ? b1->const_data_ptr() : nullptr},
                                       gemms.stream);
  std::shared_ptr<MoeMlpBackward> backward;
  if (torch::autograd::compute_requires_grad(x_TD, w1, w2, gates, b1, b2)) {
    backward = {new MoeMlpBackward, torch::autograd::deleteNode};
    backward->set_next_edges(torch::autograd::collect_next_edges(x_TD, w1, w2, gates, b1, b2));
    const auto saved = [](const auto& input) { return SavedVariable(input, /*is_output=*/false); };
    backward->saved = {saved(x_TD), saved(w1), saved(w2), saved(gates), saved(b1), saved(b2)};
    backward->h = h;
    backward->routing = routing;
    backward->routing.tiles_E3 = tiles_E3;
    backward->kind = kind;
  }
  h.reset();  // otherwise its memory is free for the rows of the down projection
  auto y_RD = at::empty({rows, x_TD.size(1)}, x_TD.options());
  kernels::grouped_gemm_fwd({.product = gemms.times(act_RF, nullptr, w2, x_TD.size(1)),
                             .c = y_RD.mutable_data_ptr(),
                             .bias = b2 ? b2->const_data_ptr() : nullptr},
                            gemms.stream);
  auto out_TD = sum_rows(gemms, y_RD, routing, gates.size(-1), gates.const_data_ptr<float>());
  if (backward) torch::autograd::set_history(out_TD, backward);
  return out_TD;
}

}  // namespace scatterlm::ops

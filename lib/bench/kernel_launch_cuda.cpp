#include <ATen/ATen.h>

#include <limits>

#include "kernels/gather_sum.h"
#include "kernels/grouped_gemm.h"
#include "kernels/routing.h"
#include "lib/bench/kernel_launch.h"
#include "lib/ops/device.h"

namespace scatterlm::bench {
namespace {

kernels::ExpertRows expert_rows(const MoeTensors& t) {
  return {.offsets_E1 = t.routing.offsets_E1.const_data_ptr<int32_t>(),
          .tiles_E3 = t.routing.tiles_E3.mutable_data_ptr<int32_t>(),
          .num_experts = t.in.shape.experts,
          .num_rows = t.in.shape.rows()};
}

/// a_rows_R undefined: a is in expert order.
kernels::GroupedProduct product(const MoeTensors& t, const at::Tensor& a, const at::Tensor& a_rows_R, const at::Tensor& b,
                                int64_t n) {
  return {.experts = expert_rows(t),
          .a = a.const_data_ptr(),
          .a_rows_R = a_rows_R.defined() ? a_rows_R.const_data_ptr<int32_t>() : nullptr,
          .b = b.const_data_ptr(),
          .n = n,
          .k = a.size(1),
          .num_sms = ops::num_sms(a),
          .compute_capability = ops::compute_capability(a)};
}

void wgrad(const MoeTensors& t, const at::Tensor& a, const at::Tensor& a_rows_R, const at::Tensor& b,
           const at::Tensor& b_rows_R, at::Tensor& dw, cudaStream_t stream) {
  const auto rows = [](const at::Tensor& x) { return x.defined() ? x.const_data_ptr<int32_t>() : nullptr; };
  kernels::WgradArgs args{.experts = expert_rows(t),
                          .a = a.const_data_ptr(),
                          .a_rows_R = rows(a_rows_R),
                          .b = b.const_data_ptr(),
                          .b_rows_R = rows(b_rows_R),
                          .m = a.size(1),
                          .n = b.size(1),
                          .dw = dw.mutable_data_ptr(),
                          .dw_type = kernels::DataType::kBfloat16,
                          .update = kernels::GradientUpdate::kStore,
                          .num_sms = ops::num_sms(a),
                          .compute_capability = ops::compute_capability(a)};
  const auto workspace = at::empty({kernels::grouped_gemm_wgrad_workspace_bytes(args)}, dw.options().dtype(at::kByte));
  args.workspace = workspace.mutable_data_ptr();
  kernels::grouped_gemm_wgrad(args, stream);
}

void gather_sum(const MoeTensors& t, const at::Tensor& y_RD, const at::Tensor& gates_TK, at::Tensor& out_TD,
                cudaStream_t stream) {
  kernels::gather_sum({.y = y_RD.const_data_ptr(),
                       .inverse_R = t.routing.inverse_R.const_data_ptr<int32_t>(),
                       .gates = gates_TK.defined() ? gates_TK.const_data_ptr<float>() : nullptr,
                       .out = out_TD.mutable_data_ptr(),
                       .num_tokens = t.in.shape.tokens,
                       .top_k = t.in.shape.top_k,
                       .n = y_RD.size(1)},
                      stream);
}

void make_routing(MoeTensors& t, cudaStream_t stream) {
  const auto out = [](at::Tensor& x) { return x.mutable_data_ptr<int32_t>(); };
  kernels::make_routing({.ids_R = t.in.ids_TK.const_data_ptr<int32_t>(),
                         .num_rows = t.in.shape.rows(),
                         .top_k = t.in.shape.top_k,
                         .num_experts = t.in.shape.experts,
                         .sorted_R = out(t.routing.sorted_R),
                         .tokens_R = out(t.routing.tokens_R),
                         .inverse_R = out(t.routing.inverse_R),
                         .offsets_E1 = out(t.routing.offsets_E1),
                         .tiles_E3 = out(t.routing.tiles_E3),
                         .workspace = t.routing_workspace.mutable_data_ptr()},
                        stream);
}

void activation_bwd(MoeTensors& t, cudaStream_t stream) {
  kernels::grouped_gemm_activation_bwd({.product = product(t, t.in.dout_TD, t.routing.tokens_R, t.in.w2, t.in.shape.width),
                                        .activation = kernels::Activation::kSwiglu,
                                        .h = t.dh.mutable_data_ptr(),
                                        .act_gated = t.act_gated.mutable_data_ptr(),
                                        .gates = t.in.gates_TK.const_data_ptr<float>(),
                                        .sorted_R = t.routing.sorted_R.const_data_ptr<int32_t>(),
                                        .dgates_partial = t.dgates_partial.mutable_data_ptr<float>()},
                                       stream);
}

void sum_dgates(MoeTensors& t, cudaStream_t stream) {
  kernels::sum_dgates({.partial = t.dgates_partial.const_data_ptr<float>(),
                       .inverse_R = t.routing.inverse_R.const_data_ptr<int32_t>(),
                       .dgates = t.dgates_R.mutable_data_ptr<float>(),
                       .num_rows = t.in.shape.rows(),
                       .num_partials = t.dgates_partial.size(1)},
                      stream);
}

}  // namespace

void allocate_on_gpu(MoeTensors& t) {
  const int64_t rows = t.in.shape.rows(), experts = t.in.shape.experts;
  const auto poisoned = [&](int64_t size) { return at::full({size}, -1, t.in.ids_TK.options()); };
  t.routing = {.num_tokens = t.in.shape.tokens, .top_k = t.in.shape.top_k, .num_experts = experts};
  t.routing.sorted_R = poisoned(rows);
  t.routing.inverse_R = poisoned(rows);
  t.routing.offsets_E1 = poisoned(experts + 1);
  t.routing.tokens_R = poisoned(rows);
  t.routing.tiles_E3 = poisoned(experts + 3);
  t.routing_workspace = at::empty({kernels::routing_workspace_bytes(rows, experts)}, t.in.ids_TK.options().dtype(at::kByte));
  t.dgates_partial = at::full({rows, kernels::dgates_partials(t.in.shape.width, ops::compute_capability(t.in.x_TD))},
                              std::numeric_limits<float>::quiet_NaN(), t.in.gates_TK.options());
}

void launch_on_gpu(MoeKernel kernel, MoeTensors& t) {
  const cudaStream_t stream = ops::current_stream(t.in.x_TD);
  const auto& in = t.in;
  switch (kernel) {
    case MoeKernel::kRouting: return make_routing(t, stream);
    case MoeKernel::kUp:
      return kernels::grouped_gemm_activation_fwd({.product = product(t, in.x_TD, t.routing.tokens_R, in.w1, in.shape.width),
                                                   .activation = kernels::Activation::kSwiglu,
                                                   .h = t.h.mutable_data_ptr(),
                                                   .act = t.act.mutable_data_ptr()},
                                                  stream);
    case MoeKernel::kDown:
      return kernels::grouped_gemm_fwd(
          {.product = product(t, t.act, {}, in.w2, in.shape.model), .c = t.y_RD.mutable_data_ptr()}, stream);
    case MoeKernel::kO: return gather_sum(t, t.y_RD, in.gates_TK, t.out_TD, stream);
    case MoeKernel::kDh: return activation_bwd(t, stream);
    case MoeKernel::kDgates: return sum_dgates(t, stream);
    case MoeKernel::kDw2: return wgrad(t, in.dout_TD, t.routing.tokens_R, t.act_gated, {}, t.dw2, stream);
    case MoeKernel::kDxRows:
      return kernels::grouped_gemm_dgrad(
          {.product = product(t, t.dh, {}, in.w1, in.shape.model), .c = t.dx_RD.mutable_data_ptr()}, stream);
    case MoeKernel::kDw1: return wgrad(t, t.dh, {}, in.x_TD, t.routing.tokens_R, t.dw1, stream);
    case MoeKernel::kDx: return gather_sum(t, t.dx_RD, {}, t.dx_TD, stream);
  }
}

}  // namespace scatterlm::bench

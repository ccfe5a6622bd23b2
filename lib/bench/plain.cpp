#include "lib/bench/plain.h"

#include <ATen/ATen.h>

namespace scatterlm::bench::plain {
namespace {

bool has_grouped_mm(const at::Tensor& a) { return a.is_cuda() && a.scalar_type() == at::kBFloat16; }

/// body(e, rows of e) for every expert. Waits for the device.
template <class Body>
void for_experts(const at::Tensor& offsets_E1, Body&& body) {
  const auto host = offsets_E1.cpu();
  const auto* offsets = host.const_data_ptr<int32_t>();
  for (int64_t e = 0; e + 1 < host.numel(); ++e) body(e, at::indexing::Slice(offsets[e], offsets[e + 1]));
}

/// Rows of slots or, where there are fewer, of tokens.
at::Tensor rows_in_expert_order(const at::Tensor& x, const ops::Routing& routing) {
  return x.size(0) == routing.num_tokens ? gather(x, routing) : x.index_select(0, routing.sorted_R);
}

at::Tensor input_rows(const Linear& linear, const ops::Routing& routing) {
  return linear.in_order == ops::RowOrder::kToken ? rows_in_expert_order(linear.x, routing) : linear.x;
}

at::Tensor gates_in_expert_order(const at::Tensor& gates_TK, const ops::Routing& routing) {
  return gates_TK.flatten().index_select(0, routing.sorted_R);
}

}  // namespace

at::Tensor grouped_mm(const at::Tensor& a, const at::Tensor& weight, const at::Tensor& offsets_E1) {
  if (has_grouped_mm(a)) return at::_grouped_mm(a, weight, offsets_E1.slice(0, 1));
  auto c = at::empty({a.size(0), weight.size(2)}, a.options());
  for_experts(offsets_E1, [&](int64_t e, const auto& rows) {
    auto part = c.index({rows});
    at::mm_out(part, a.index({rows}), weight[e]);
  });
  return c;
}

at::Tensor grouped_wgrad(const at::Tensor& a, const at::Tensor& b, const at::Tensor& offsets_E1) {
  if (has_grouped_mm(a)) return at::_grouped_mm(a.t(), b, offsets_E1.slice(0, 1));
  auto dw = at::empty({offsets_E1.size(0) - 1, a.size(1), b.size(1)}, a.options());
  for_experts(offsets_E1, [&](int64_t e, const auto& rows) {
    auto part = dw[e];
    at::mm_out(part, a.index({rows}).t(), b.index({rows}));
  });
  return dw;
}

at::Tensor gather(const at::Tensor& x_TD, const ops::Routing& routing) {
  return x_TD.index_select(0, at::floor_divide(routing.sorted_R, routing.top_k));
}

at::Tensor gather_sum(const at::Tensor& y_RD, const at::Tensor& gates_TK, const ops::Routing& routing) {
  auto rows = y_RD.index_select(0, routing.inverse_R).view({routing.num_tokens, routing.top_k, -1});
  if (gates_TK.defined()) rows = rows * gates_TK.unsqueeze(2);  // fp32 gates widen bfloat16 rows
  return rows.sum(1).to(y_RD.scalar_type());
}

at::Tensor swiglu(const at::Tensor& h) {
  const auto halves = h.chunk(2, 1);
  return at::silu(halves[0]) * halves[1];
}

SwigluBwd swiglu_bwd(const at::Tensor& da, const at::Tensor& h, const at::Tensor& gates_TK, const ops::Routing& routing) {
  const auto halves = h.chunk(2, 1);
  const auto gates_R1 = gates_in_expert_order(gates_TK, routing).unsqueeze(1);
  const auto silu = at::silu(halves[0]), act = silu * halves[1], da_gated = (da * gates_R1).to(h.scalar_type());
  return {.dh = at::cat({at::silu_backward(da_gated * halves[1], halves[0]), da_gated * silu}, 1),
          .act_gated = (act * gates_R1).to(h.scalar_type()),
          .dgates_R = (da.to(gates_TK.scalar_type()) * act).sum(1)};
}

Forward forward(const MoeInputs& in, const ops::Routing& routing) {
  const auto h = grouped_mm(gather(in.x_TD, routing), in.w1.transpose(1, 2), routing.offsets_E1);
  const auto y_RD = grouped_mm(swiglu(h), in.w2.transpose(1, 2), routing.offsets_E1);
  return {h, gather_sum(y_RD, in.gates_TK, routing)};
}

Gradients backward(const MoeInputs& in, const ops::Routing& routing, const at::Tensor& h) {
  const auto dout_RD = gather(in.dout_TD, routing);
  const auto act = swiglu_bwd(grouped_mm(dout_RD, in.w2, routing.offsets_E1), h, in.gates_TK, routing);
  return {.dx_TD = gather_sum(grouped_mm(act.dh, in.w1, routing.offsets_E1), {}, routing),
          .dw1 = grouped_wgrad(act.dh, gather(in.x_TD, routing), routing.offsets_E1),
          .dw2 = grouped_wgrad(dout_RD, act.act_gated, routing.offsets_E1),
          .dgates_TK = act.dgates_R.index_select(0, routing.inverse_R).view(in.gates_TK.sizes())};
}

at::Tensor forward(const Linear& linear, const ops::Routing& routing) {
  const auto y_RN = grouped_mm(input_rows(linear, routing), linear.weight.transpose(1, 2), routing.offsets_E1);
  if (linear.gates_TK.defined()) return gather_sum(y_RN, linear.gates_TK, routing);
  return linear.out_order == ops::RowOrder::kToken ? y_RN.index_select(0, routing.inverse_R) : y_RN;
}

LinearGradients backward(const Linear& linear, const ops::Routing& routing, const at::Tensor& dout) {
  const auto& x = linear.x;
  const auto dy_RN = linear.out_order == ops::RowOrder::kToken ? rows_in_expert_order(dout, routing) : dout;
  auto x_RN = input_rows(linear, routing), dx_RN = grouped_mm(dy_RN, linear.weight, routing.offsets_E1);
  LinearGradients grads;
  if (linear.gates_TK.defined()) {
    const auto gates_R1 = gates_in_expert_order(linear.gates_TK, routing).unsqueeze(1);
    const auto dgates_R = (dx_RN.to(linear.gates_TK.scalar_type()) * x_RN).sum(1);
    grads.dgates_TK = dgates_R.index_select(0, routing.inverse_R).view(linear.gates_TK.sizes());
    dx_RN = (dx_RN * gates_R1).to(x.scalar_type());
    x_RN = (x_RN * gates_R1).to(x.scalar_type());
  }
  grads.dweight = grouped_wgrad(dy_RN, x_RN, routing.offsets_E1);
  if (linear.in_order == ops::RowOrder::kExpert)
    grads.dx = dx_RN;
  else if (x.size(0) == routing.num_tokens)
    grads.dx = gather_sum(dx_RN, {}, routing);
  else
    grads.dx = dx_RN.index_select(0, routing.inverse_R);
  return grads;
}

}  // namespace scatterlm::bench::plain

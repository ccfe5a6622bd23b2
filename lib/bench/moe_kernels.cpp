#include "lib/bench/moe_kernels.h"

#include <ATen/ATen.h>

#include <limits>

#include "lib/bench/kernel_launch.h"
#include "lib/bench/plain.h"
#include "lib/config/enums.h"
#include "lib/ops/activation.h"
#include "lib/ops/gather_sum.h"
#include "lib/ops/grouped_gemm.h"

namespace scatterlm::bench {
namespace {

void launch_on_cpu(MoeKernel kernel, MoeTensors& t) {
  const auto& offsets_E1 = t.routing.offsets_E1;
  const int64_t top_k = t.in.shape.top_k;
  const auto in_expert_order = [&](const at::Tensor& x_TD) { return ops::gather_rows(x_TD, t.routing.sorted_R, top_k); };
  switch (kernel) {
    case MoeKernel::kRouting: t.routing = ops::make_routing(t.in.ids_TK, t.in.shape.experts); break;
    case MoeKernel::kUp:
      t.h = ops::grouped_gemm_fwd(in_expert_order(t.in.x_TD), t.in.w1, offsets_E1);
      t.act = ops::activation_fwd(t.h, Activation::kSwiglu);
      break;
    case MoeKernel::kDown: t.y_RD = ops::grouped_gemm_fwd(t.act, t.in.w2, offsets_E1); break;
    case MoeKernel::kO: t.out_TD = ops::gather_sum(t.y_RD, t.routing.inverse_R, top_k, t.in.gates_TK); break;
    case MoeKernel::kDh: {
      const auto da = ops::grouped_gemm_dgrad(in_expert_order(t.in.dout_TD), t.in.w2, offsets_E1);
      const auto gates_R = ops::gather_rows(t.in.gates_TK.view({-1, 1}), t.routing.sorted_R, 1).flatten();
      const auto grad = ops::gated_activation_bwd(da, t.h, gates_R, Activation::kSwiglu);
      t.dh = grad.dh;
      t.act_gated = grad.a_gated;
      t.dgates_partial = grad.dgates.unsqueeze(1);
      break;
    }
    case MoeKernel::kDgates: t.dgates_R = ops::gather_rows(t.dgates_partial, t.routing.inverse_R, 1).flatten(); break;
    case MoeKernel::kDw2: t.dw2 = ops::grouped_gemm_wgrad(in_expert_order(t.in.dout_TD), t.act_gated, offsets_E1); break;
    case MoeKernel::kDxRows: t.dx_RD = ops::grouped_gemm_dgrad(t.dh, t.in.w1, offsets_E1); break;
    case MoeKernel::kDw1: t.dw1 = ops::grouped_gemm_wgrad(t.dh, in_expert_order(t.in.x_TD), offsets_E1); break;
    case MoeKernel::kDx: t.dx_TD = ops::gather_sum(t.dx_RD, t.routing.inverse_R, top_k); break;
  }
}

/// The metadata that the kernels of a GPU want besides is there only if it was made for them.
std::vector<at::Tensor> plain_routing(const MoeTensors& t) {
  const auto routing = ops::ref::make_routing(t.in.ids_TK, t.in.shape.experts);
  std::vector<at::Tensor> made = {routing.sorted_R, routing.inverse_R, routing.offsets_E1};
  if (!t.routing.tiles_E3.defined()) return made;
  constexpr int64_t kTileRows = 128;
  const auto tiles = at::floor_divide(routing.offsets_E1.diff() + (kTileRows - 1), kTileRows);
  made.push_back(at::floor_divide(routing.sorted_R, t.in.shape.top_k));
  made.push_back(at::cat({at::zeros({1}, tiles.options()), tiles.cumsum(0, at::kInt), at::zeros({2}, tiles.options())}));
  return made;
}

}  // namespace

MoeTensors make_tensors(const MoeInputs& in) {
  const MoeShape& s = in.shape;
  const int64_t rows = s.rows();
  const auto nan = [&](at::IntArrayRef sizes) {
    return at::full(sizes, std::numeric_limits<double>::quiet_NaN(), in.x_TD.options());
  };
  const auto wide = in.gates_TK.options();
  MoeTensors t{.in = in};
  t.h = nan({rows, 2 * s.width});
  t.act = nan({rows, s.width});
  t.y_RD = nan({rows, s.model});
  t.out_TD = nan({s.tokens, s.model});
  t.dh = nan({rows, 2 * s.width});
  t.act_gated = nan({rows, s.width});
  t.dgates_R = at::full({rows}, std::numeric_limits<double>::quiet_NaN(), wide);
  t.dw2 = nan({s.experts, s.model, s.width});
  t.dx_RD = nan({rows, s.model});
  t.dw1 = nan({s.experts, 2 * s.width, s.model});
  t.dx_TD = nan({s.tokens, s.model});
  if (in.x_TD.is_cuda()) allocate_on_gpu(t);
  return t;
}

void prepare(MoeKernel kernel, MoeTensors& t) {
  if (kernel == MoeKernel::kDh) t.dh.copy_(t.h);
}

void launch(MoeKernel kernel, MoeTensors& tensors) {
  if (tensors.in.x_TD.is_cuda())
    launch_on_gpu(kernel, tensors);
  else
    launch_on_cpu(kernel, tensors);
}

std::vector<at::Tensor> outputs(MoeKernel kernel, const MoeTensors& t) {
  switch (kernel) {
    case MoeKernel::kRouting: {
      std::vector<at::Tensor> made = {t.routing.sorted_R, t.routing.inverse_R, t.routing.offsets_E1};
      if (t.routing.tiles_E3.defined()) made.insert(made.end(), {t.routing.tokens_R, t.routing.tiles_E3});
      return made;
    }
    case MoeKernel::kUp: return {t.h, t.act};
    case MoeKernel::kDown: return {t.y_RD};
    case MoeKernel::kO: return {t.out_TD};
    case MoeKernel::kDh: return {t.dh, t.act_gated, t.dgates_partial.sum(1, /*keepdim=*/true)};
    case MoeKernel::kDgates: return {t.dgates_R.unsqueeze(1)};
    case MoeKernel::kDw2: return {t.dw2};
    case MoeKernel::kDxRows: return {t.dx_RD};
    case MoeKernel::kDw1: return {t.dw1};
    case MoeKernel::kDx: return {t.dx_TD};
  }
  return {};
}

std::vector<at::Tensor> plain_outputs(MoeKernel kernel, const MoeTensors& t, at::ScalarType dtype) {
  const auto to = [&](const at::Tensor& x) { return x.to(dtype); };
  const auto gates_TK = t.in.gates_TK.to(dtype == at::kDouble ? at::kDouble : at::kFloat);
  const auto& offsets_E1 = t.routing.offsets_E1;
  const auto in_expert_order = [&](const at::Tensor& x_TD) { return plain::gather(to(x_TD), t.routing); };
  switch (kernel) {
    case MoeKernel::kRouting: return plain_routing(t);
    case MoeKernel::kUp: {
      const auto h = plain::grouped_mm(in_expert_order(t.in.x_TD), to(t.in.w1).transpose(1, 2), offsets_E1);
      return {h, plain::swiglu(h)};
    }
    case MoeKernel::kDown: return {plain::grouped_mm(to(t.act), to(t.in.w2).transpose(1, 2), offsets_E1)};
    case MoeKernel::kO: return {plain::gather_sum(to(t.y_RD), gates_TK, t.routing)};
    case MoeKernel::kDh: {
      const auto da = plain::grouped_mm(in_expert_order(t.in.dout_TD), to(t.in.w2), offsets_E1);
      const auto grad = plain::swiglu_bwd(da, to(t.h), gates_TK, t.routing);
      return {grad.dh, grad.act_gated, grad.dgates_R.unsqueeze(1)};
    }
    case MoeKernel::kDgates: {
      const auto partial = t.dgates_partial.to(dtype == at::kBFloat16 ? at::kFloat : at::kDouble);  // they are fp32
      return {partial.sum(1).index_select(0, t.routing.inverse_R).unsqueeze(1)};
    }
    case MoeKernel::kDw2: return {plain::grouped_wgrad(in_expert_order(t.in.dout_TD), to(t.act_gated), offsets_E1)};
    case MoeKernel::kDxRows: return {plain::grouped_mm(to(t.dh), to(t.in.w1), offsets_E1)};
    case MoeKernel::kDw1: return {plain::grouped_wgrad(to(t.dh), in_expert_order(t.in.x_TD), offsets_E1)};
    case MoeKernel::kDx: return {plain::gather_sum(to(t.dx_RD), {}, t.routing)};
  }
  return {};
}

}  // namespace scatterlm::bench

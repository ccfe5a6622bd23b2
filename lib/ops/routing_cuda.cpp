#include "lib/ops/routing_cuda.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "kernels/device/ceil_div.h"
#include "lib/ops/allocate_together.h"
#include "lib/ops/device.h"

namespace scatterlm::ops {

NewRouting::NewRouting(const at::Tensor& ids_TK, int64_t num_experts)
    : routing{
          .num_tokens = ids_TK.size(0), .top_k = ids_TK.size(1), .num_experts = num_experts, .stream = current_stream(ids_TK)} {
  const int64_t rows = ids_TK.numel();
  const int64_t workspace_size =
      kernels::ceil_div(kernels::routing_workspace_bytes(rows, num_experts), int64_t{sizeof(int32_t)});
  allocate_together(ids_TK.options(), {{routing.sorted_R, rows},
                                       {routing.tokens_R, rows},
                                       {routing.inverse_R, rows},
                                       {routing.offsets_E1, num_experts + 1},
                                       {routing.tiles_E3, num_experts + 3},
                                       {workspace, workspace_size}});  // some 0.1 % of what a layer keeps for its backward
  const auto data = [](const at::Tensor& x) { return x.mutable_data_ptr<int32_t>(); };
  args = {.ids_R = ids_TK.const_data_ptr<int32_t>(),
          .num_rows = rows,
          .top_k = routing.top_k,
          .num_experts = num_experts,
          .sorted_R = data(routing.sorted_R),
          .tokens_R = data(routing.tokens_R),
          .inverse_R = data(routing.inverse_R),
          .offsets_E1 = data(routing.offsets_E1),
          .tiles_E3 = data(routing.tiles_E3),
          .workspace = workspace.mutable_data_ptr()};
}

at::Tensor tiles_for_stream(const Routing& routing, CUstream_st* stream) {
  if (stream == routing.stream) return routing.tiles_E3;
  return at::constant_pad_nd(routing.tiles_E3.slice(0, 0, routing.num_experts + 1), {0, 2});
}

std::optional<Routing> cuda::make_routing(const at::Tensor& ids_TK, int64_t num_experts) {
  if (!has_kernels(ids_TK) || num_experts > kernels::kMaxRoutingExperts) return {};
  const c10::DeviceGuard guard(ids_TK.device());
  const NewRouting made(ids_TK, num_experts);
  kernels::make_routing(made.args, made.routing.stream);
  return made.routing;
}

}  // namespace scatterlm::ops

#include "lib/ops/routing.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "lib/ops/device.h"
#include "lib/ops/shape.h"
#include "lib/util/error.h"

#ifdef SCATTERLM_KERNELS
#include "kernels/device/ceil_div.h"
#include "kernels/routing.h"
#include "lib/ops/lists.h"
#endif

namespace scatterlm::ops {
namespace {

/// Counting sort of the slots by expert.
void sort_slots(const at::Tensor& ids_TK, Routing& routing) {
  const int64_t rows = ids_TK.numel(), num_experts = routing.num_experts;
  routing.sorted_R = at::empty({rows}, ids_TK.options());
  routing.inverse_R = at::empty({rows}, ids_TK.options());
  routing.tokens_R = at::empty({rows}, ids_TK.options());
  routing.offsets_E1 = at::zeros({num_experts + 1}, ids_TK.options());
  const auto* ids = ids_TK.const_data_ptr<int32_t>();
  auto *sorted = routing.sorted_R.mutable_data_ptr<int32_t>(), *inverse = routing.inverse_R.mutable_data_ptr<int32_t>(),
       *tokens = routing.tokens_R.mutable_data_ptr<int32_t>(), *offsets = routing.offsets_E1.mutable_data_ptr<int32_t>();
  for (int64_t i = 0; i < rows; ++i) {
    if (ids[i] < 0 || ids[i] >= num_experts)
      fail("[routing] ids must be in 0..E-1={}, got {} in slot {}", num_experts - 1, ids[i], i);
    ++offsets[ids[i] + 1];
  }
  for (int64_t e = 0; e < num_experts; ++e) offsets[e + 1] += offsets[e];
  std::vector<int32_t> next(offsets, offsets + num_experts);
  for (int64_t i = 0; i < rows; ++i) {
    const int32_t row = next[ids[i]]++;
    sorted[row] = static_cast<int32_t>(i);
    tokens[row] = static_cast<int32_t>(i / routing.top_k);
    inverse[i] = row;
  }
}

#ifdef SCATTERLM_KERNELS
void sort_slots_on_gpu(const at::Tensor& ids_TK, Routing& routing) {
  const c10::DeviceGuard guard(ids_TK.device());
  const int64_t rows = ids_TK.numel(), num_experts = routing.num_experts;
  const int64_t workspace_size =
      kernels::ceil_div(kernels::routing_workspace_bytes(rows, num_experts), int64_t{sizeof(int32_t)});
  at::Tensor workspace;  // some 0.1 % of what a layer keeps for its backward
  allocate_lists(ids_TK.options(), {{routing.sorted_R, rows},
                                    {routing.tokens_R, rows},
                                    {routing.inverse_R, rows},
                                    {routing.offsets_E1, num_experts + 1},
                                    {routing.tiles_E3, num_experts + 3},
                                    {workspace, workspace_size}});
  const auto data = [](const at::Tensor& x) { return x.mutable_data_ptr<int32_t>(); };
  kernels::make_routing({.ids_R = ids_TK.const_data_ptr<int32_t>(),
                         .num_rows = rows,
                         .top_k = routing.top_k,
                         .num_experts = num_experts,
                         .sorted_R = data(routing.sorted_R),
                         .tokens_R = data(routing.tokens_R),
                         .inverse_R = data(routing.inverse_R),
                         .offsets_E1 = data(routing.offsets_E1),
                         .tiles_E3 = data(routing.tiles_E3),
                         .workspace = workspace.mutable_data_ptr()},
                        current_stream(ids_TK));
}
#endif

}  // namespace

Routing ref::make_routing(const at::Tensor& ids_TK, int64_t num_experts) {
  Routing routing{.num_tokens = ids_TK.size(0), .top_k = ids_TK.size(1), .num_experts = num_experts};
  const auto [sorted_ids, order] = at::sort(ids_TK.flatten(), /*stable=*/std::optional(true), /*dim=*/0, /*descending=*/false);
  routing.sorted_R = order.to(at::kInt);
  routing.tokens_R = at::floor_divide(routing.sorted_R, routing.top_k);
  const auto rows = at::arange(order.numel(), routing.sorted_R.options());
  routing.inverse_R = at::empty_like(routing.sorted_R).scatter_(0, order, rows);
  routing.offsets_E1 = at::searchsorted(sorted_ids, at::arange(num_experts + 1, sorted_ids.options()), /*out_int32=*/true);
  return routing;
}

Routing make_routing(const at::Tensor& ids_TK, int64_t num_experts) {
  if (ids_TK.dim() != 2 || ids_TK.scalar_type() != at::kInt)
    fail("[routing] ids must be int32 [T, K], got {} {}", c10::toString(ids_TK.scalar_type()), shape_of(ids_TK));
  if (ids_TK.size(1) < 1) fail("[routing] every token needs an expert at least, got ids {}", shape_of(ids_TK));
  if (num_experts < 1) fail("[routing] num_experts must be positive, got {}", num_experts);
  Routing routing{.num_tokens = ids_TK.size(0), .top_k = ids_TK.size(1), .num_experts = num_experts};
#ifdef SCATTERLM_KERNELS
  if (has_kernels(ids_TK) && num_experts <= kernels::kMaxRoutingExperts) {
    sort_slots_on_gpu(ids_TK.contiguous(), routing);
    return routing;
  }
#endif
  // Without tiles_E3, so that ops take their plain paths too.
  if (!ids_TK.is_cpu()) return ref::make_routing(ids_TK, num_experts);
  sort_slots(ids_TK.contiguous(), routing);
  return routing;
}

}  // namespace scatterlm::ops

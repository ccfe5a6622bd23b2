// Routing as a counting sort on the CPU, and in LibTorch's own operations on any device.
#include <ATen/ATen.h>

#include "lib/ops/routing.h"
#include "lib/util/error.h"

namespace scatterlm::ops {

/// Counting sort of the slots by expert.
Routing cpu::make_routing(const at::Tensor& ids_TK, int64_t num_experts) {
  Routing routing{.num_tokens = ids_TK.size(0), .top_k = ids_TK.size(1), .num_experts = num_experts};
  const int64_t rows = ids_TK.numel();
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
  return routing;
}

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

}  // namespace scatterlm::ops

#include "lib/ops/routing.h"

#include "lib/ops/shape.h"
#include "lib/util/error.h"

namespace scatterlm::ops {

Routing make_routing(const at::Tensor& ids_TK, int64_t num_experts) {
  if (ids_TK.dim() != 2 || ids_TK.scalar_type() != at::kInt)
    fail("[routing] ids must be int32 [T, K], got {} {}", c10::toString(ids_TK.scalar_type()), shape_of(ids_TK));
  if (ids_TK.size(1) < 1) fail("[routing] every token needs an expert at least, got ids {}", shape_of(ids_TK));
  if (num_experts < 1) fail("[routing] num_experts must be positive, got {}", num_experts);
  const auto ids = ids_TK.contiguous();
  if (auto routing = cuda::make_routing(ids, num_experts)) return *routing;
  // Without tiles_E3, so that the ops with experts run without kernels too.
  return ids.is_cpu() ? cpu::make_routing(ids, num_experts) : ref::make_routing(ids, num_experts);
}

}  // namespace scatterlm::ops

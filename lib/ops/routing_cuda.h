// Memory of the routing that kernels make; only *_cuda.cpp files include it.
#pragma once
#include <ATen/core/Tensor.h>

#include "kernels/routing.h"
#include "lib/ops/routing.h"

namespace scatterlm::ops {

/// A routing and the arguments of the kernel that fills it. The workspace is for the kernel only.
struct NewRouting {
  NewRouting(const at::Tensor& ids_TK, int64_t num_experts);

  Routing routing;
  at::Tensor workspace;
  kernels::RoutingArgs args;
};

}  // namespace scatterlm::ops

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

/// The tiles_E3 with which the kernels of kernels/grouped_gemm.h may run on `stream`, forward and backward, while products over
/// the same routing run on other streams.
///
/// Kernels that share tile counters must not run at the same time. On routing.stream they run one after another, so they share
/// the counters that make_routing cleared: training has one stream, and pays nothing. A call on any other stream gets a copy
/// with cleared counters. No other call has it, its backward runs on the stream of its forward (autograd sees to that), and the
/// caching allocator hands its memory only to later work on that stream. A captured product runs where its graph is replayed,
/// so the graph should contain make_routing too.
at::Tensor tiles_for_stream(const Routing& routing, CUstream_st* stream);

}  // namespace scatterlm::ops

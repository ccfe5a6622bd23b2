// The kernels of an MoE MLP one by one, on tensors of their own: ours, and the same in plain LibTorch.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "lib/bench/inputs.h"
#include "lib/bench/work.h"
#include "lib/ops/routing.h"

namespace scatterlm::bench {

/// Everything that the kernels read and write.
struct MoeTensors {
  MoeInputs in;
  ops::Routing routing;
  at::Tensor routing_workspace;                        ///< on a GPU
  at::Tensor h, act, y_RD, out_TD;                     ///< h [R, 2F], act [R, F]
  at::Tensor dh, act_gated, dgates_partial, dgates_R;  ///< dgates_partial [R, P] in expert order, dgates_R in slot order
  at::Tensor dw2, dx_RD, dw1, dx_TD;
};

/// Outputs are NaN, for the check to see what a kernel leaves out.
MoeTensors make_tensors(const MoeInputs& in);

/// Before each launch: the kernel of dh writes over a copy of h.
void prepare(MoeKernel kernel, MoeTensors& tensors);

/// Enqueues one kernel of kernels/ on a GPU; runs the loops of lib/ops on a CPU.
void launch(MoeKernel kernel, MoeTensors& tensors);

/// What launch() wrote.
std::vector<at::Tensor> outputs(MoeKernel kernel, const MoeTensors& tensors);

/// The same in plain LibTorch, from the same inputs in another precision.
std::vector<at::Tensor> plain_outputs(MoeKernel kernel, const MoeTensors& tensors, at::ScalarType dtype);

}  // namespace scatterlm::bench

// The kernels of kernels/ on LibTorch's tensors, without an op around them.
#pragma once
#include "lib/bench/moe_kernels.h"

namespace scatterlm::bench {

/// Buffers of the kernels' own.
void allocate_on_gpu(MoeTensors& tensors);
void launch_on_gpu(MoeKernel kernel, MoeTensors& tensors);

}  // namespace scatterlm::bench

#pragma once
#include <vector>

#include "lib/bench/bench.h"
#include "lib/bench/figure.h"
#include "lib/bench/moe_kernels.h"

namespace scatterlm::bench {

/// Tensors after every kernel ran once, in order, so that each has the inputs it has in the op.
MoeTensors run_all_kernels(const MoeInputs& in);

/// The largest error of the kernel's outputs, in units of plain LibTorch's. Throws Error if they are wrong.
double check_kernel(MoeKernel kernel, const MoeTensors& tensors);

/// The kernel as a variant to time.
Variant variant_of(MoeKernel kernel, MoeTensors& tensors);

Figure figure_of(MoeKernel kernel, const std::string& name, const Spread& ms, const MoeShape& shape, const Machine& machine);

}  // namespace scatterlm::bench

// Compiled in place of the *_cuda.cpp files in a build without kernels, as lib/ops/no_kernels.cpp. find_machine() refuses to
// bench a GPU with such a program, so nothing is launched.
#include "lib/bench/kernel_launch.h"

namespace scatterlm::bench {

void allocate_on_gpu(MoeTensors&) {}
void launch_on_gpu(MoeKernel, MoeTensors&) {}

}  // namespace scatterlm::bench

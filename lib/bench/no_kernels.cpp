// Compiled in place of the *_cuda.cpp files in a build without kernels, as lib/ops/no_kernels.cpp. find_machine() refuses to
// bench a GPU with such a program, so nothing is launched.
#include "lib/bench/graph.h"
#include "lib/bench/kernel_launch.h"

namespace scatterlm::bench {

std::function<void()> captured(const std::function<void()>& run, c10::Device) { return run; }
void allocate_on_gpu(MoeTensors&) {}
void launch_on_gpu(MoeKernel, MoeTensors&) {}

}  // namespace scatterlm::bench

// Bound by arithmetic: two Philox blocks an element.
#include "kernels/normal.h"

#include "kernels/device/ceil_div.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/philox.h"

namespace scatterlm::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) fill_normal_kernel(const __grid_constant__ FillNormalArgs p) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < p.count) p.out[i] = normal(p.stream, p.first + static_cast<uint64_t>(i), p.scale);
}

}  // namespace

void fill_normal(const FillNormalArgs& args, cudaStream_t stream) {
  if (args.count == 0) return;
  launch("fill_normal", fill_normal_kernel, ceil_div(args.count, kThreads), kThreads, 0, args, stream);
}

}  // namespace scatterlm::kernels

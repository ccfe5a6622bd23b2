// The kernels as the benchmark calls them, on CPU tensors: kernels compiled for tests/kernels/emulated.
#include "lib/bench/kernel_launch.h"

#include <ATen/ATen.h>

#include "lib/bench/kernels_alone.h"
#include "lib/ops/device.h"
#include "tests/catch.h"

namespace scatterlm::bench {
namespace {

MoeInputs bfloat16_inputs(const MoeShape& shape, RoutingPattern pattern) {
  auto in = make_inputs(shape, pattern, at::kCPU);
  for (auto* x : {&in.x_TD, &in.w1, &in.w2, &in.dout_TD}) *x = x->to(at::kBFloat16);
  return in;
}

}  // namespace

TEST_CASE("kernel_launch: every kernel does what the benchmark takes it for", "[kernel_launch]") {
  ops::assume_compute_capability(GENERATE(80, 90));
  const auto shape = GENERATE(MoeShape{.tokens = 131, .model = 72, .width = 264, .experts = 6, .top_k = 2},
                              MoeShape{.tokens = 1, .model = 8, .width = 16, .experts = 3, .top_k = 3});
  const auto pattern = GENERATE(RoutingPattern::kRandom, RoutingPattern::kOne);
  INFO(text_of(shape.sizes()) << " " << routing_name(pattern));
  auto tensors = make_tensors(bfloat16_inputs(shape, pattern));
  allocate_on_gpu(tensors);
  for (const auto kernel : kAllKernels) {
    INFO(kernel_name(kernel));
    for (int run = 0; run < 2; ++run) {  // the second as when it is timed: over its own results
      prepare(kernel, tensors);
      launch_on_gpu(kernel, tensors);
      REQUIRE(check_kernel(kernel, tensors) <= 2);
    }
  }
  REQUIRE(outputs(MoeKernel::kRouting, tensors).size() == 5);
}

}  // namespace scatterlm::bench

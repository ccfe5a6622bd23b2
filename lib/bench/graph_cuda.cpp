#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>

#include "lib/bench/graph.h"

std::function<void()> scatterlm::bench::captured(const std::function<void()>& run, c10::Device device) {
  if (!device.is_cuda()) return run;
  const auto graph = std::make_shared<at::cuda::CUDAGraph>();
  const c10::cuda::CUDAStreamGuard stream(c10::cuda::getStreamFromPool());  // the default stream cannot be recorded
  run();
  graph->capture_begin();
  run();
  graph->capture_end();
  return [graph] { graph->replay(); };
}

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>

#include "lib/ops/graph.h"

std::function<void()> scatterlm::ops::captured(const std::function<void()>& run, c10::Device device) {
  if (!device.is_cuda()) return run;
  const auto graph = std::make_shared<at::cuda::CUDAGraph>();
  c10::cuda::CUDAEvent before, after;
  before.record(c10::cuda::getCurrentCUDAStream(device.index()));
  {
    // The default stream cannot be recorded.
    const c10::cuda::CUDAStreamGuard stream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index()));
    before.block(stream.current_stream());
    run();  // allocates what outlives a run, as workspaces of cuBLAS
    graph->capture_begin();
    run();
    graph->capture_end();
    after.record(stream.current_stream());
  }
  after.block(c10::cuda::getCurrentCUDAStream(device.index()));
  return [graph] { graph->replay(); };
}

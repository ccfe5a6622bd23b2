// Grouped GEMM over rows: C[m, :] = A[row(m), :] B[e(m)], tiles of 128 x 256, fp32 accumulators in registers.
//
// One block per multiprocessor takes tiles as it comes (tile_counter.cuh). Warpgroup 0 loads (rows_loader.cuh); warpgroups 1
// and 2 compute 64 rows of the tile each. The epilogue is deferred: at the end of a tile its accumulators are rounded to bf16
// in registers, and its steps run between the first products of the next tile, in the shadow of the tensor cores. An exposed
// epilogue costs 7 % (12 % with an activation). The loaders alone know the schedule and say with a stage which tile it begins:
// thirteen registers less here, where a spilled one costs a trip to L2 (this and that made products with short rows 5 %
// faster).
#pragma once
#include "kernels/grouped_gemm/hopper/epilogue.cuh"
#include "kernels/grouped_gemm/hopper/pipeline.cuh"
#include "kernels/grouped_gemm/hopper/rows_loader.cuh"

namespace scatterlm::kernels::hopper {

template <class Epilogue>
struct RowsParams {
  RowsProblem problem;
  typename Epilogue::Params epilogue;
};

template <class Loader, class Weight, class Epilogue>
__global__ void __launch_bounds__(kThreads, 1) rows_kernel(const __grid_constant__ RowsParams<Epilogue> params) {
  static_assert(kRegistersSuffice<Loader::kLoaderRegisters, Loader::kComputeRegisters>);
  using Pipe = Pipeline<Epilogue::kStages, Epilogue::kStagingBytes>;
  const Pipe pipe{shared_address(dynamic_shared<void>())};
  const RowsProblem& problem = params.problem;
  if (threadIdx.x == 0) {
    prefetch_tensor_map(problem.b);
    pipe.init_barriers(Loader::kCopyingThreads, Epilogue::kBarrierArrivals);
  }
  __syncthreads();

  if (threadIdx.x < 128) {
    registers_lower<Loader::kLoaderRegisters>();
    Loader::template run<Weight>(problem, pipe);
    return;
  }
  registers_raise<Loader::kComputeRegisters>();
  const int warpgroup = threadIdx.x / 128 - 1, num_blocks = problem.num_blocks();
  Accumulator<Pipe, Major::kK, Weight::kMajor, Loader::kCopyingThreads> accumulator(pipe, warpgroup);
  Epilogue epilogue(params.epilogue, pipe.staging(warpgroup), pipe.epilogue_barriers(warpgroup), warpgroup);
  uint32_t packed[64];  // a finished tile, waiting to be stored: two neighbouring columns in each
  bool waiting = false;
  const int steps_per_block = num_blocks > Epilogue::kStoreSteps ? 1 : Epilogue::kMaxStepsPerBlock;
  for (auto tile = accumulator.template next_tile<RowTile>(); tile.row >= 0; tile = accumulator.template next_tile<RowTile>()) {
    int block = 0;
    float acc[128];  // inside the loop: declared outside, it goes to the stack
#pragma unroll
    for (int i = 0; i < Epilogue::kStoreSteps; ++i) {
      if (block < num_blocks && i % steps_per_block == 0) accumulator.step(acc, block++);
      if (waiting) epilogue.store(i, packed);
    }
    if (block < num_blocks) accumulator.step(acc, block++);
    epilogue.begin(tile);  // what it fetches for this tile arrives beside the products left
    waiting = true;
    while (block < num_blocks) accumulator.step(acc, block++);
    epilogue.end_of_tile();
    accumulator.finish(acc);
    Weight::add_bias(acc, problem, tile);
#pragma unroll
    for (int i = 0; i < 64; ++i) packed[i] = pack_bf16(acc[2 * i], acc[2 * i + 1]);
  }
  if (waiting) {
#pragma unroll
    for (int i = 0; i < Epilogue::kStoreSteps; ++i) epilogue.store(i, packed);
  }
  tma_store_wait<0>();
}

}  // namespace scatterlm::kernels::hopper

// From the arguments of a grouped GEMM over rows to a launch.
#pragma once
#include <algorithm>
#include <string>

#include "kernels/device/launch.cuh"
#include "kernels/device/operand.h"
#include "kernels/device/tensor_map.h"
#include "kernels/grouped_gemm.h"
#include "kernels/grouped_gemm/rows_kernel.cuh"

namespace scatterlm::kernels {

/// Of products of backward: WeightTransposed adds none.
inline void refuse_bias(const char* op, const GroupedGemmArgs& args) {
  if (args.bias) throw KernelError("[" + std::string(op) + "] takes no bias: only forward products add one");
}

template <class Weight, class Loader, class Epilogue>
void launch_rows(const char* op, const GroupedGemmArgs& args, const CUtensorMap& b, int columns_per_tile,
                 const typename Epilogue::Params& epilogue, cudaStream_t stream) {
  RowsParams<Epilogue> params{};
  params.epilogue = epilogue;
  RowsProblem& problem = params.problem;
  if (!args.a_rows_R)
    problem.a = tensor_map(op, MapType::kBf16, args.a, {args.k, args.experts.num_rows}, {args.k * 2}, {kBlockK, kTileRows});
  problem.b = b;
  problem.a_data = args.a;
  problem.a_rows_R = args.a_rows_R;
  problem.offsets_E1 = args.experts.offsets_E1;
  problem.tiles_E3 = args.experts.tiles_E3;
  problem.tile_counters = args.experts.tile_counters();
  problem.num_experts = static_cast<int>(args.experts.num_experts);
  problem.n_tiles = static_cast<int>(ceil_div(args.n, columns_per_tile));
  problem.n = static_cast<int>(args.n);
  problem.k = static_cast<int>(args.k);
  problem.bias = args.bias;
  const int64_t most_tiles = args.experts.most_tiles() * problem.n_tiles;
  launch(op, rows_kernel<Loader, Weight, Epilogue>, std::min<int64_t>(args.num_sms, most_tiles), kThreads,
         Pipeline<Epilogue::kStages, Epilogue::kStagingBytes>::kBytes, params, stream);
}

/// b [E, n, k], or [E, 2n, k] with halves = 2.
inline CUtensorMap weight_as_stored(const char* op, const GroupedGemmArgs& args, int halves) {
  return tensor_map(op, MapType::kBf16, args.b, {args.k, args.n, args.experts.num_experts * halves},
                    {args.k * 2, args.n * args.k * 2}, {kBlockK, kTileColumns / halves, 1});
}

/// b [E, k, n].
inline CUtensorMap weight_transposed(const char* op, const GroupedGemmArgs& args) {
  return tensor_map(op, MapType::kBf16, args.b, {args.n, args.k, args.experts.num_experts}, {args.n * 2, args.n * args.k * 2},
                    {64, kBlockK, 1});
}

}  // namespace scatterlm::kernels

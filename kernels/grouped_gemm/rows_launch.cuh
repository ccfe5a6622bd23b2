// From the arguments of a grouped GEMM over rows to a launch.
#pragma once
#include <algorithm>
#include <string>

#include "kernels/device/launch.cuh"
#include "kernels/device/tensor_map.h"
#include "kernels/grouped_gemm.h"
#include "kernels/grouped_gemm/rows_kernel.cuh"

namespace scatterlm::kernels {

inline void check_operand(const char* op, const char* name, const void* data, int64_t width) {
  if (reinterpret_cast<uintptr_t>(data) % 16 != 0)
    throw KernelError("[" + std::string(op) + "] " + name + " must be aligned to 16 bytes");
  if (width < 8 || width % 8 != 0)
    throw KernelError("[" + std::string(op) + "] rows of " + name + " must be multiples of 8 elements, got " +
                      std::to_string(width));
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
  problem.num_experts = static_cast<int>(args.experts.num_experts);
  problem.n_tiles = static_cast<int>(ceil_div(args.n, columns_per_tile));
  problem.n = static_cast<int>(args.n);
  problem.k = static_cast<int>(args.k);
  problem.bias = args.bias;
  const int64_t most_tiles = (ceil_div(args.experts.num_rows, kTileRows) + args.experts.num_experts) * problem.n_tiles;
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

// From the arguments of a grouped GEMM over rows to a launch.
#pragma once
#include <algorithm>
#include <string>

#include "kernels/device/launch.cuh"
#include "kernels/device/operand.h"
#include "kernels/device/tensor_map.h"
#include "kernels/grouped_gemm.h"
#include "kernels/grouped_gemm/hopper/rows_kernel.cuh"

namespace scatterlm::kernels::hopper {

/// The matrices of the experts, and the biases that Weight::add_bias adds (nullptr: none).
struct WeightOperand {
  CUtensorMap map;
  const void* bias;
};

template <class Weight, class Loader, class Epilogue>
void launch_rows(const char* op, const GroupedProduct& product, const WeightOperand& b, int columns_per_tile,
                 const typename Epilogue::Params& epilogue, cudaStream_t stream) {
  RowsParams<Epilogue> params{};
  params.epilogue = epilogue;
  RowsProblem& problem = params.problem;
  if (!product.a_rows_R)
    problem.a = tensor_map(op, DataType::kBfloat16, product.a, {product.k, product.experts.num_rows}, {product.k * 2},
                           {kBlockK, kTileRows});
  problem.b = b.map;
  problem.a_data = product.a;
  problem.a_rows_R = product.a_rows_R;
  problem.offsets_E1 = product.experts.offsets_E1;
  problem.tiles_E3 = product.experts.tiles_E3;
  problem.tile_counters = product.experts.tile_counters();
  problem.num_experts = static_cast<int>(product.experts.num_experts);
  problem.n_tiles = static_cast<int>(ceil_div(product.n, columns_per_tile));
  problem.n = static_cast<int>(product.n);
  problem.k = static_cast<int>(product.k);
  problem.bias = b.bias;
  const int64_t most_tiles = product.experts.most_tiles() * problem.n_tiles;
  launch(op, rows_kernel<Loader, Weight, Epilogue>, std::min<int64_t>(product.num_sms, most_tiles), kThreads,
         Pipeline<Epilogue::kStages, Epilogue::kStagingBytes>::kBytes, params, stream);
}

/// b [E, n, k], or [E, 2n, k] with halves = 2.
inline WeightOperand weight_as_stored(const char* op, const GroupedProduct& product, int halves, const void* bias) {
  const auto map = tensor_map(op, DataType::kBfloat16, product.b, {product.k, product.n, product.experts.num_experts * halves},
                              {product.k * 2, product.n * product.k * 2}, {kBlockK, kTileColumns / halves, 1});
  return {map, bias};
}

/// b [E, k, n].
inline WeightOperand weight_transposed(const char* op, const GroupedProduct& product) {
  const auto map = tensor_map(op, DataType::kBfloat16, product.b, {product.n, product.k, product.experts.num_experts},
                              {product.n * 2, product.n * product.k * 2}, {64, kBlockK, 1});
  return {map, nullptr};
}

}  // namespace scatterlm::kernels::hopper

// Backward of biases b[e] of experts, added to every row of e (kernels/grouped_gemm.h). Rows are those of ExpertRows, of bf16
// and n columns, a multiple of 8; matrices are aligned to 16 bytes. Sums are fp32 in a fixed order.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/grouped_gemm.h"

namespace scatterlm::kernels {

/// db[e] = sum over the rows m of e of gates[sorted[m]] dy[m].
struct ExpertBiasGradArgs {
  ExpertRows experts;
  const void* dy;            ///< bf16 [R, n], or [rows, n] with dy_rows
  const int32_t* dy_rows_R;  ///< row of dy that is row m; nullptr: m
  const float* gates;        ///< fp32, one per slot; nullptr: 1 for all
  const int32_t* sorted_R;   ///< slot of row m; unused without gates
  int64_t n;
  void* db;  ///< [E, n]
  DataType db_type;
  GradientUpdate update;  ///< kStore: 0 for an expert without rows; kAdd: db += (rounded to the type of db)
};
void expert_bias_grad(const ExpertBiasGradArgs& args, cudaStream_t stream);

/// dots[m] = <dy[m], bias[e]>: what a bias adds to the gradient of a gate behind it.
struct ExpertBiasDotsArgs {
  ExpertRows experts;
  const void* dy;            ///< bf16 [rows, n]
  const int32_t* dy_rows_R;  ///< [R] row of dy that is row m
  const void* bias;          ///< bf16 [E, n]
  int64_t n;
  float* dots_R;
};
void expert_bias_dots(const ExpertBiasDotsArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels

// Bound by memory: every row of dy is read once. Gradient: a block has 128 columns of an expert, 16 threads on the 256 bytes of
// a row and 16 rows at a time; sums of the rows' threads meet in shared memory. Dots: a warp for each row of an expert by
// turns.
#include "kernels/expert_bias.h"

#include <algorithm>

#include "kernels/device/ceil_div.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/operand.h"
#include "kernels/device/vec8.cuh"
#include "kernels/device/warp.cuh"
#include "kernels/grouped_gemm/update_pair.cuh"

namespace scatterlm::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kChunks = 16, kColumns = kChunks * kVec8, kRowsAtOnce = kThreads / kChunks;
constexpr int kInFlight = 4;  // rows of a thread on their way
constexpr int kWarps = kThreads / 32;

__global__ void __launch_bounds__(kThreads) expert_bias_grad_kernel(const __grid_constant__ ExpertBiasGradArgs p) {
  const unsigned column_blocks = ceil_div(static_cast<unsigned>(p.n), static_cast<unsigned>(kColumns));
  const int64_t expert = blockIdx.x / column_blocks, first_column = int64_t{blockIdx.x % column_blocks} * kColumns;
  const int chunk = threadIdx.x % kChunks, own_row = threadIdx.x / kChunks;
  const int64_t column = first_column + chunk * kVec8;
  const int64_t begin = p.experts.offsets_E1[expert], end = p.experts.offsets_E1[expert + 1];
  float sum[kVec8] = {};
  if (column < p.n) {
    const auto* dy = static_cast<const Bf16*>(p.dy) + column;
    for (int64_t first = begin + own_row; first < end; first += kInFlight * kRowsAtOnce) {
      float value[kInFlight][kVec8] = {}, scale[kInFlight] = {};
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
        const int64_t m = first + j * kRowsAtOnce;
        if (m >= end) continue;
        load_vec8(dy + (p.dy_rows_R ? p.dy_rows_R[m] : m) * p.n, value[j]);
        scale[j] = p.gates ? p.gates[p.sorted_R[m]] : 1.0f;
      }
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
        if (first + j * kRowsAtOnce >= end) continue;
#pragma unroll
        for (int i = 0; i < kVec8; ++i) sum[i] = fmaf(scale[j], value[j][i], sum[i]);
      }
    }
  }
  auto* sums = dynamic_shared<float[kColumns]>();  // of each row of threads
#pragma unroll
  for (int i = 0; i < kVec8; ++i) sums[own_row][chunk * kVec8 + i] = sum[i];
  __syncthreads();
  const int pair = threadIdx.x * 2;
  if (pair >= kColumns || first_column + pair >= p.n) return;
  if (begin == end && p.update == GradientUpdate::kAdd) return;
  float x = 0, y = 0;
#pragma unroll
  for (int row = 0; row < kRowsAtOnce; ++row) {
    x += sums[row][pair];
    y += sums[row][pair + 1];
  }
  update_pair(p.db, p.db_type, p.update, expert * p.n + first_column + pair, x, y);
}

struct DotsParams {
  ExpertBiasDotsArgs args;
  unsigned blocks_per_expert;
};

__global__ void __launch_bounds__(kThreads) expert_bias_dots_kernel(const __grid_constant__ DotsParams p) {
  const ExpertBiasDotsArgs& args = p.args;
  const int lane = threadIdx.x % 32;
  const int64_t expert = blockIdx.x / p.blocks_per_expert;
  const int64_t warp = int64_t{blockIdx.x % p.blocks_per_expert} * kWarps + threadIdx.x / 32;
  const auto *dy = static_cast<const Bf16*>(args.dy), *bias = static_cast<const Bf16*>(args.bias) + expert * args.n;
  const int64_t end = args.experts.offsets_E1[expert + 1];
  for (int64_t m = args.experts.offsets_E1[expert] + warp; m < end; m += int64_t{p.blocks_per_expert} * kWarps) {
    const Bf16* row = dy + args.dy_rows_R[m] * args.n;
    float dot = 0;
    for (int64_t column = lane * kVec8; column < args.n; column += 32 * kVec8) {
      float x[kVec8], b[kVec8];
      load_vec8(row + column, x);
      load_vec8(bias + column, b);
#pragma unroll
      for (int i = 0; i < kVec8; ++i) dot = fmaf(x[i], b[i], dot);
    }
    dot = warp_sum(dot);
    if (lane == 0) args.dots_R[m] = dot;
  }
}

}  // namespace

void expert_bias_grad(const ExpertBiasGradArgs& args, cudaStream_t stream) {
  constexpr const char* kOp = "expert_bias_grad";
  check_operand(kOp, "dy", args.dy, args.n);
  check_operand(kOp, "db", args.db, args.n);
  const int64_t blocks = args.experts.num_experts * ceil_div(args.n, kColumns);
  launch(kOp, expert_bias_grad_kernel, blocks, kThreads, kRowsAtOnce * kColumns * sizeof(float), args, stream);
}

void expert_bias_dots(const ExpertBiasDotsArgs& args, cudaStream_t stream) {
  constexpr const char* kOp = "expert_bias_dots";
  constexpr int64_t kRowsPerWarp = 8;  // of an expert with as many rows as the others
  check_operand(kOp, "dy", args.dy, args.n);
  check_operand(kOp, "bias", args.bias, args.n);
  if (args.experts.num_rows == 0) return;
  const int64_t blocks = ceil_div(args.experts.num_rows, args.experts.num_experts * kWarps * kRowsPerWarp);
  launch(kOp, expert_bias_dots_kernel, args.experts.num_experts * blocks, kThreads, 0,
         DotsParams{args, static_cast<unsigned>(blocks)}, stream);
}

}  // namespace scatterlm::kernels

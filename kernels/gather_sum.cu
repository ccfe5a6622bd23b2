// Bound by memory: every row of y is read once. A block sums one token, or 2048 columns of it; a thread has 8 columns (16
// bytes) and up to 8 rows in flight.
#include "kernels/gather_sum.h"

#include <algorithm>

#include "kernels/device/launch.cuh"
#include "kernels/device/ptx.cuh"

namespace scatterlm::kernels {
namespace {

constexpr int kColumns = 8, kRowsInFlight = 8, kMaxThreads = 256;

__device__ void add(float (&sum)[kColumns], uint4 y, float gate) {
  const uint32_t packed[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum[2 * i] = fmaf(gate, low_bf16(packed[i]), sum[2 * i]);
    sum[2 * i + 1] = fmaf(gate, high_bf16(packed[i]), sum[2 * i + 1]);
  }
}

/// Where the slots of a token are. Types of their own: in one kernel for both, offsets would cost registers and so occupancy.
struct FixedSlots {
  __device__ static int64_t first(const GatherSumArgs& p, int64_t token) { return token * p.top_k; }
  __device__ static int64_t count(const GatherSumArgs& p, int64_t) { return p.top_k; }
};
struct ListedSlots {
  __device__ static int64_t first(const GatherSumArgs& p, int64_t token) { return p.token_offsets_T1[token]; }
  __device__ static int64_t count(const GatherSumArgs& p, int64_t token) {
    return p.token_offsets_T1[token + 1] - p.token_offsets_T1[token];
  }
};

template <class Slots>
__global__ void __launch_bounds__(kMaxThreads) gather_sum_kernel(const __grid_constant__ GatherSumArgs p) {
  const unsigned column_blocks = (static_cast<unsigned>(p.n / kColumns) + blockDim.x - 1) / blockDim.x;
  const int64_t token = blockIdx.x / column_blocks;
  const int64_t column = int64_t{blockIdx.x % column_blocks * blockDim.x + threadIdx.x} * kColumns;
  if (column >= p.n) return;
  const int32_t* rows = p.inverse_R + Slots::first(p, token);
  const float* gates = p.gates ? p.gates + Slots::first(p, token) : nullptr;
  const auto* y = static_cast<const char*>(p.y) + column * 2;
  float sum[kColumns] = {};
  for (int64_t first = 0; first < Slots::count(p, token); first += kRowsInFlight) {
    const int count = static_cast<int>(min(Slots::count(p, token) - first, int64_t{kRowsInFlight}));
    uint4 value[kRowsInFlight];
#pragma unroll
    for (int j = 0; j < kRowsInFlight; ++j)
      if (j < count) value[j] = __ldcs(reinterpret_cast<const uint4*>(y + int64_t{rows[first + j]} * p.n * 2));
#pragma unroll
    for (int j = 0; j < kRowsInFlight; ++j)
      if (j < count) add(sum, value[j], gates ? gates[first + j] : 1.0f);
  }
  *reinterpret_cast<uint4*>(static_cast<char*>(p.out) + (token * p.n + column) * 2) =
      uint4{pack_bf16(sum[0], sum[1]), pack_bf16(sum[2], sum[3]), pack_bf16(sum[4], sum[5]), pack_bf16(sum[6], sum[7])};
}

__global__ void __launch_bounds__(kMaxThreads) sum_dgates_kernel(const __grid_constant__ SumDgatesArgs p) {
  const int64_t slot = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (slot >= p.num_rows) return;
  const float* partial = p.partial + int64_t{p.inverse_R[slot]} * p.num_partials;
  float sum = 0.0f;
  for (int64_t i = 0; i < p.num_partials; ++i) sum += partial[i];
  p.dgates[slot] = sum;
}

}  // namespace

void gather_sum(const GatherSumArgs& args, cudaStream_t stream) {
  if (args.n < kColumns || args.n % kColumns != 0)
    throw KernelError("[gather_sum] n must be a multiple of 8, got " + std::to_string(args.n));
  if (args.num_tokens == 0) return;
  const int64_t chunks = args.n / kColumns;
  const int threads = static_cast<int>(std::min<int64_t>((chunks + 31) / 32 * 32, kMaxThreads));
  const int64_t blocks = args.num_tokens * ((chunks + threads - 1) / threads);
  launch("gather_sum", args.token_offsets_T1 ? gather_sum_kernel<ListedSlots> : gather_sum_kernel<FixedSlots>, blocks, threads,
         0, args, stream);
}

void sum_dgates(const SumDgatesArgs& args, cudaStream_t stream) {
  if (args.num_rows == 0) return;
  launch("sum_dgates", sum_dgates_kernel, (args.num_rows + kMaxThreads - 1) / kMaxThreads, kMaxThreads, 0, args, stream);
}

}  // namespace scatterlm::kernels

// Bound by memory: every row of y is read once. A block sums 1, 2 or 4 tokens, or 2048 columns of them; a thread has 8 columns
// (16 bytes) and up to 8 rows in flight.
#include "kernels/gather_sum.h"

#include <algorithm>

#include "kernels/device/ceil_div.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/operand.h"
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
};
struct ListedSlots {
  __device__ static int64_t first(const GatherSumArgs& p, int64_t token) { return p.token_offsets_T1[token]; }
};

/// The 8 columns of a thread, of some rows of one token.
template <int kRows>
struct Rows {
  int count;
  int32_t row[kRows];
  float gate[kRows];
  uint4 value[kRows];

  /// Of slots first, first + 1, ... before `end`.
  __device__ void find(const GatherSumArgs& p, int64_t first, int64_t end) {
    count = static_cast<int>(min(end - first, int64_t{kRows}));
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      row[j] = j < count ? p.inverse_R[first + j] : 0;
      gate[j] = p.gates && j < count ? p.gates[first + j] : 1.0f;
    }
  }
  __device__ void load(const GatherSumArgs& p, int64_t column) {
    const auto* y = static_cast<const char*>(p.y) + column * 2;
#pragma unroll
    for (int j = 0; j < kRows; ++j)
      if (j < count) value[j] = __ldcg(reinterpret_cast<const uint4*>(y + row[j] * p.n * 2));
  }
  __device__ void add_to(float (&sum)[kColumns]) const {
#pragma unroll
    for (int j = 0; j < kRows; ++j)
      if (j < count) add(sum, value[j], gate[j]);
  }
};

__device__ void sum_dgates_of(const SumDgatesArgs& p, int64_t slot) {
  const int64_t row = p.inverse_R[slot];
  const float* partial = p.partial + row * p.num_partials;
  float sum = p.dots_R ? p.dots_R[row] : 0.0f;
  for (int64_t i = 0; i < p.num_partials; ++i) sum += partial[i];
  p.dgates[slot] = sum;
}

/// What a block does besides, for the slots first .. end - 1 of its tokens, with `threads` of its threads.
struct RowsAlone : GatherSumArgs {
  __device__ void beside(int64_t, int64_t, unsigned) const {}
};
struct RowsAndDgates : GatherSumArgs {
  SumDgatesArgs dgates;
  __device__ void beside(int64_t first, int64_t end, unsigned threads) const {
    for (int64_t i = first + threadIdx.x; i < end; i += threads) sum_dgates_of(dgates, i);
  }
};

/// kTokens kRows rows are in flight: where a token has few of them, a thread sums several tokens.
template <class Args, class Slots, int kTokens>
__global__ void __launch_bounds__(kMaxThreads) gather_sum_kernel(const __grid_constant__ Args p) {
  constexpr int kRows = kRowsInFlight / kTokens;
  const unsigned column_blocks = ceil_div(static_cast<unsigned>(p.n / kColumns), blockDim.x);
  const int64_t first_token = int64_t{blockIdx.x / column_blocks} * kTokens;
  const int64_t column = int64_t{blockIdx.x % column_blocks * blockDim.x + threadIdx.x} * kColumns;
  if (column >= p.n) return;
  int64_t slot[kTokens + 1];  // first of each token
#pragma unroll
  for (int i = 0; i <= kTokens; ++i) slot[i] = Slots::first(p, min(first_token + i, p.num_tokens));
  Rows<kRows> rows[kTokens];
#pragma unroll
  for (int i = 0; i < kTokens; ++i) rows[i].find(p, slot[i], slot[i + 1]);
#pragma unroll
  for (int i = 0; i < kTokens; ++i) rows[i].load(p, column);
  if (blockIdx.x % column_blocks == 0)  // while the rows are on their way; threads beyond n are gone
    p.beside(slot[0], slot[kTokens], min(static_cast<unsigned>(p.n / kColumns), blockDim.x));
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    if (first_token + i >= p.num_tokens) return;
    float sum[kColumns] = {};
    rows[i].add_to(sum);
    for (int64_t first = slot[i] + kRows; first < slot[i + 1]; first += kRows) {
      rows[i].find(p, first, slot[i + 1]);
      rows[i].load(p, column);
      rows[i].add_to(sum);
    }
    __stcs(reinterpret_cast<uint4*>(static_cast<char*>(p.out) + ((first_token + i) * p.n + column) * 2),
           uint4{pack_bf16(sum[0], sum[1]), pack_bf16(sum[2], sum[3]), pack_bf16(sum[4], sum[5]), pack_bf16(sum[6], sum[7])});
  }
}

template <class Slots, class Args>
void launch_gather_sum(const Args& args, cudaStream_t stream) {
  const int64_t chunks = args.n / kColumns;
  const int threads = static_cast<int>(std::min<int64_t>(ceil_div(chunks, 32) * 32, kMaxThreads));
  const auto start = [&](auto kernel, int tokens) {
    launch("gather_sum", kernel, ceil_div(args.num_tokens, tokens) * ceil_div(chunks, threads), threads, 0, args, stream);
  };
  if (args.top_k <= 2) return start(gather_sum_kernel<Args, Slots, 4>, 4);
  if (args.top_k <= 4) return start(gather_sum_kernel<Args, Slots, 2>, 2);
  start(gather_sum_kernel<Args, Slots, 1>, 1);
}

template <class Args>
void check_and_launch(const Args& args, cudaStream_t stream) {
  check_operand("gather_sum", "y", args.y, args.n);
  check_operand("gather_sum", "out", args.out, args.n);
  if (args.num_tokens == 0) return;
  if (args.token_offsets_T1)
    launch_gather_sum<ListedSlots>(args, stream);
  else
    launch_gather_sum<FixedSlots>(args, stream);
}

__global__ void __launch_bounds__(kMaxThreads) sum_dgates_kernel(const __grid_constant__ SumDgatesArgs p) {
  const int64_t slot = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (slot < p.num_rows) sum_dgates_of(p, slot);
}

}  // namespace

void gather_sum(const GatherSumArgs& args, cudaStream_t stream) { check_and_launch(RowsAlone{args}, stream); }

void gather_sum_with_dgates(const GatherSumArgs& args, const SumDgatesArgs& dgates, cudaStream_t stream) {
  check_and_launch(RowsAndDgates{args, dgates}, stream);
}

void sum_dgates(const SumDgatesArgs& args, cudaStream_t stream) {
  if (args.num_rows == 0) return;
  launch("sum_dgates", sum_dgates_kernel, ceil_div(args.num_rows, kMaxThreads), kMaxThreads, 0, args, stream);
}

}  // namespace scatterlm::kernels

// Bound by memory: what matters is that the weights of the experts that have rows are read once and at full speed. Tiles of 128
// rows are too few blocks for that.
//
// A block multiplies all rows of one expert by sixteen rows of its weight: two runs of eight, neighbours, or of the gate and
// the up half. Nobody knows on the host which experts have rows, so there is a block for each row and each sixteen; the one at
// an expert's first row does them all, the others end at once.
//
// The products are those of mma.cuh with the weight as first operand and eight rows of a as second, straight from global
// memory: the order of k in a product is free as long as both operands have the same, so a lane's 16 bytes, eight k in a row,
// are its part of two products. Two products for 1 KB of weight, however many of the eight rows there are: ordinary arithmetic
// would take an instruction for each element and row, with eight rows of an expert most of what the chip does while the weight
// comes in. The warps take turns along k; their sums meet in shared memory, in the order of the warps.
#include "kernels/grouped_gemm/small_m.h"

#include "kernels/device/launch.cuh"
#include "kernels/device/mma.cuh"
#include "kernels/device/ptx.cuh"
#include "kernels/grouped_gemm/activations.cuh"

namespace scatterlm::kernels::small_m {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32;
constexpr int kRunRows = 8, kRuns = 2;          // rows of the weight
constexpr int kGroupRows = 8;                   // rows of a in one product
constexpr int kStepK = 32, kStepsPerChunk = 4;  // a lane has 128 bytes of weight on their way before it waits for any
constexpr int kStepBytes = kStepK * 2;
constexpr int kChunkK = kStepK * kStepsPerChunk;

/// Blocks on a multiprocessor, for an expert's rows in kGroups groups: each has 16 KB of weight on their way, where latency
/// times bandwidth is some 32 KB. More of them would leave too few registers to fetch rows of a beside it, or spill.
template <int kGroups>
constexpr int kBlocksPerSm = kGroups == 1 ? 6 : 5;

template <class Epilogue>
struct Params {
  GroupedProduct product;
  const void* bias;  ///< [E, halves n]; nullptr: none
  unsigned column_blocks;
  Epilogue epilogue;
};

__device__ void store_pair(void* matrix, int64_t element, uint32_t pair) {
  *reinterpret_cast<uint32_t*>(static_cast<char*>(matrix) + element * 2) = pair;
}

/// C = the product, row m in row c_rows[m], or in row m.
struct StoreEpilogue {
  static constexpr int kHalves = 1;
  void* c;
  const int32_t* c_rows_R;
  int64_t n;

  /// Two neighbouring columns of each run.
  __device__ void store(int64_t m, const int64_t (&column)[kRuns], const uint32_t (&pair)[kRuns]) const {
    const int64_t row = c_rows_R ? __ldg(c_rows_R + m) : m;
#pragma unroll
    for (int run = 0; run < kRuns; ++run) store_pair(c, row * n + column[run], pair[run]);
  }
};

/// H = the product and A = activation(H).
template <class Policy>
struct ActivationEpilogue {
  static constexpr int kHalves = Policy::kHalves;
  void* h;    ///< [R, kHalves F]
  void* act;  ///< [R, F]
  int64_t width;

  __device__ void store(int64_t m, const int64_t (&column)[kRuns], const uint32_t (&pair)[kRuns]) const {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      store_pair(h, m * kHalves * width + column[run], pair[run]);
      if (run < kRuns / kHalves) store_pair(act, m * width + column[run], activate_pair<Policy>(pair[run], pair[kRuns - 1]));
    }
  }
};

struct Found {
  int expert, rows;  ///< rows 0: none
};

/// The expert whose first row is m. All lanes call; 128 experts take one trip to memory.
__device__ Found expert_from_row(const ExpertRows& experts, int m) {
  if (!experts.offsets_E1) return {0, m == 0 ? static_cast<int>(experts.num_rows) : 0};
  constexpr int kAtOnce = 4;
  const int num_experts = static_cast<int>(experts.num_experts);
  unsigned expert = 0, rows = 0;  // of one lane at most
#pragma unroll 1
  for (int group = threadIdx.x % 32; group < num_experts; group += 32 * kAtOnce) {
    int begin[kAtOnce], end[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int e = min(group + 32 * i, num_experts - 1);
      begin[i] = __ldg(experts.offsets_E1 + e);
      end[i] = __ldg(experts.offsets_E1 + e + 1);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (begin[i] == m && end[i] > m) {
        expert = min(group + 32 * i, num_experts - 1);
        rows = end[i] - m;
      }
  }
  return {static_cast<int>(__reduce_max_sync(~0u, expert)), static_cast<int>(__reduce_max_sync(~0u, rows))};
}

/// What a lane multiplies. Its pointers and its k begin at its own 16 bytes of the first step.
template <int kGroups>
struct Operands {
  const char* weight[kRuns];
  const char* a;
  int a_row[kGroups];  ///< -1: no such row
  int rows;            ///< of the expert
  int k;
};

/// d[g][i] += element i (mma.cuh) of the block's sixteen times group g, over this warp's part of k.
template <int kGroups>
__device__ void multiply(float (&d)[kGroups][4], const Operands<kGroups>& in, int k) {
  constexpr uint4 kZeros{0, 0, 0, 0};
  for (int begin = threadIdx.x / 32 * kChunkK; begin < k; begin += kWarps * kChunkK) {
    uint4 weight[kStepsPerChunk][kRuns];
#pragma unroll
    for (int step = 0; step < kStepsPerChunk; ++step)
#pragma unroll
      for (int run = 0; run < kRuns; ++run) {
        const char* at = in.weight[run] + int64_t{begin} * 2 + step * kStepBytes;
        weight[step][run] = begin + step * kStepK < in.k ? load_once(at) : kZeros;
      }
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (group * kGroupRows >= in.rows) break;
      const char* row = in.a + (int64_t{in.a_row[group]} * k + begin) * 2;
      uint4 a[kStepsPerChunk];
#pragma unroll
      for (int step = 0; step < kStepsPerChunk; ++step) {
        const bool exists = in.a_row[group] >= 0 && begin + step * kStepK < in.k;
        a[step] = exists ? __ldg(reinterpret_cast<const uint4*>(row + step * kStepBytes)) : kZeros;
      }
#pragma unroll
      for (int step = 0; step < kStepsPerChunk; ++step) {
        const uint4 &first = weight[step][0], &second = weight[step][1];
        mma_m16n8k16(d[group], {first.x, second.x, first.y, second.y}, a[step].x, a[step].y);
        mma_m16n8k16(d[group], {first.z, second.z, first.w, second.w}, a[step].z, a[step].w);
      }
    }
  }
}

/// Stores the sums over the warps: a thread has two columns of each run in one row. bias: of the expert, or nullptr.
template <int kGroups, class Epilogue>
__device__ void finish(const float (&d)[kGroups][4], const Epilogue& epilogue, const char* bias, int first_row, int rows,
                       int64_t column, int64_t to_second) {
  constexpr int kPairs = kRunRows / 2;
  static_assert(kGroups * kGroupRows * kPairs <= kThreads);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // Of each warp.
  auto* sums = dynamic_shared<float[kGroups * kGroupRows][kRuns * kRunRows]>();
  // Products are done when all lanes have met.
  __syncwarp();
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sums[warp][group * kGroupRows + lane % 4 * 2 + i % 2][i / 2 * kRunRows + lane / 4] = d[group][i];
  __syncthreads();
  const int row = threadIdx.x / kPairs, pair = threadIdx.x % kPairs * 2;
  if (row >= rows) return;
  uint32_t packed[kRuns];
#pragma unroll
  for (int run = 0; run < kRuns; ++run) {
    float low = 0, high = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      low += sums[w][row][run * kRunRows + pair];
      high += sums[w][row][run * kRunRows + pair + 1];
    }
    if (bias) {
      const uint32_t of_pair = __ldg(reinterpret_cast<const uint32_t*>(bias + (column + run * to_second + pair) * 2));
      low += low_bf16(of_pair);
      high += high_bf16(of_pair);
    }
    packed[run] = pack_bf16(low, high);
  }
  epilogue.store(first_row + row, {column + pair, column + to_second + pair}, packed);
}

template <int kGroups, class Epilogue>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm<kGroups>) product_kernel(const __grid_constant__ Params<Epilogue> p) {
  constexpr int kHalves = Epilogue::kHalves, kColumns = kRuns * kRunRows / kHalves;
  const GroupedProduct& product = p.product;
  const int first_row = static_cast<int>(blockIdx.x / p.column_blocks), own_row = threadIdx.x % 32 / 4;
  const int64_t column = int64_t{blockIdx.x % p.column_blocks} * kColumns, own_k = threadIdx.x % 4 * 8;
  Operands<kGroups> in{.a = static_cast<const char*>(product.a) + own_k * 2, .k = static_cast<int>(product.k - own_k)};
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {  // before it is known whether they exist: nothing waits for them later
    const int m = first_row + group * kGroupRows + own_row;
    in.a_row[group] = product.a_rows_R && m < product.experts.num_rows ? __ldg(product.a_rows_R + m) : m;
  }
  const Found found = expert_from_row(product.experts, first_row);
  if (found.rows == 0) return;
  in.rows = found.rows;
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
    if (group * kGroupRows + own_row >= in.rows) in.a_row[group] = -1;

  // Where the second run would begin behind the last column it is the first again: the same bits, stored twice.
  const int64_t to_second = kHalves == 2 ? product.n : column + kRunRows < product.n ? kRunRows : 0;
  const int64_t weight_row = int64_t{found.expert} * kHalves * product.n + column + own_row;
#pragma unroll
  for (int run = 0; run < kRuns; ++run)
    in.weight[run] = static_cast<const char*>(product.b) + ((weight_row + run * to_second) * product.k + own_k) * 2;
  float d[kGroups][4] = {};
  multiply(d, in, static_cast<int>(product.k));
  const auto* bias = static_cast<const char*>(p.bias);
  if (bias) bias += int64_t{found.expert} * kHalves * product.n * 2;
  finish(d, p.epilogue, bias, first_row, in.rows, column, to_second);
}

template <int kGroups, class Epilogue>
void run_groups(const char* op, const GroupedProduct& product, const void* bias, const Epilogue& epilogue,
                cudaStream_t stream) {
  constexpr int kRows = kRunRows * kRuns, kColumns = kRows / Epilogue::kHalves;
  const Params<Epilogue> params{product, bias, static_cast<unsigned>(ceil_div(product.n, kColumns)), epilogue};
  const int64_t first_rows = product.experts.offsets_E1 ? product.experts.num_rows : 1;  // that an expert's may begin at
  launch(op, product_kernel<kGroups, Epilogue>, params.column_blocks * first_rows, kThreads,
         kWarps * kGroups * kGroupRows * kRows * sizeof(float), params, stream);
}

template <class Epilogue>
void run(const char* op, const GroupedProduct& product, const void* bias, const Epilogue& epilogue, cudaStream_t stream) {
  if (product.experts.num_rows <= kGroupRows) return run_groups<1>(op, product, bias, epilogue, stream);
  run_groups<kSmallM / kGroupRows>(op, product, bias, epilogue, stream);
}

}  // namespace

void fwd(const GroupedGemmFwdArgs& args, cudaStream_t stream) {
  run("grouped_gemm_fwd", args.product, args.bias, StoreEpilogue{args.c, args.c_rows_R, args.product.n}, stream);
}

void activation_fwd(const ActivationFwdArgs& args, cudaStream_t stream) {
  with_activation(args.activation, [&](auto policy) {
    run("grouped_gemm_activation_fwd", args.product, args.bias,
        ActivationEpilogue<decltype(policy)>{args.h, args.act, args.product.n}, stream);
  });
}

}  // namespace scatterlm::kernels::small_m

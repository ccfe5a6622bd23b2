// Gradients of expert weights: dW[e] = sum over the expert's rows of A[row]^T B[row], tiles [128, 256], rows are the k of the
// product. Both operands lie in shared memory as their rows are in global memory, so the tensor cores transpose both.
//
// Blocks of 64 rows of one expert. Operands in expert order come by the copy engine through a shifted map (epilogue.cuh), which
// fills rows past the expert's end with zeros; gathered ones by cp.async, zeros likewise. An expert without rows has no blocks:
// its tile is zeros, stored without touching the ring.
//
// The rows of an expert with many of them are divided among blocks: wgrad_split.h says how, and why this cannot deadlock.
#pragma once
#include "kernels/grouped_gemm/hopper/pipeline.cuh"
#include "kernels/grouped_gemm/hopper/tile_counter.cuh"
#include "kernels/grouped_gemm/hopper/wgrad_store.cuh"

namespace scatterlm::kernels::hopper {

using WgradPipe = Pipeline<4, 2 * Panels::kBytes>;
constexpr uint32_t kWgradSharedBytes = WgradPipe::kBytes + sizeof(WgradSplit);
static_assert(kWgradSharedBytes <= 232448, "more shared memory than a block can have on sm_90");

__device__ inline WgradSplit& wgrad_split() {
  return *reinterpret_cast<WgradSplit*>(dynamic_shared<char>() + WgradPipe::kBytes);
}

/// The lanes of a WgradPlanner.
struct WarpLanes {
  static constexpr int kLanes = 32;
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static int min(int x) { return static_cast<int>(__reduce_min_sync(~0u, static_cast<unsigned>(x))); }
  __device__ static int max(int x) { return static_cast<int>(__reduce_max_sync(~0u, static_cast<unsigned>(x))); }
  __device__ static LaneSums scan(int x) {
    int sum = x;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int before = __shfl_up_sync(~0u, sum, step);
      if (lane() >= step) sum += before;
    }
    return {sum - x, __shfl_sync(~0u, sum, 31)};
  }
  __device__ static void sync() { __syncwarp(); }
};

/// Loads 64 kBoxes columns of an operand in expert order, 64 rows at a time; thread 0 calls.
template <int kBoxes>
class BulkColumns {
 public:
  static constexpr bool kCopies = false;
  static constexpr uint32_t kBulkBytes = kBoxes * kBoxBytes;

  __device__ BulkColumns(const WgradOperand& operand, int column, const WgradPart& tile)
      : operand_(operand), column_(column), row_(tile.row), row_end_(tile.row_end) {}

  __device__ void load(uint32_t to, uint32_t full) {
    if (threadIdx.x == 0) {
      const int count = min(row_end_ - row_, 64);
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        // Beyond the width any columns do, as their products are not stored; a box wholly outside of a shifted map may fault.
        const int x = column_ + box * 64;
        tma_load(to + box * kBoxBytes, operand_.map, full, x < operand_.width ? x : 0, 64 - count, row_ + count);
      }
    }
    row_ += 64;
  }

 private:
  const WgradOperand& operand_;
  int column_, row_, row_end_;
};

/// Bytes that a thread copies from box `box` of its 16-byte column: all, if tiles fit the width of the operand.
struct WholeWidth {
  WholeWidth() = default;
  __device__ WholeWidth(int /*column*/, int /*width*/) {}
  __device__ static uint32_t bytes(int /*box*/) { return 16; }
};
struct ClippedWidth {
  ClippedWidth() = default;
  __device__ ClippedWidth(int column, int width) : left(width - column) {}
  __device__ uint32_t bytes(int box) const { return box * 64 < left ? 16 : 0; }
  int left;
};

/// The same of a gathered operand, by 128 threads: a warp has rows 16 j + 4 warp + lane / 8 of each block, chunk lane % 8 of
/// each box. A load of 32 indices serves two blocks and is issued two blocks ahead; shuffles spread it. Few addresses, the rest
/// immediates: the instructions of the loaders are the limit.
template <int kBoxes, class Width>
class GatheredColumns {
 public:
  static constexpr bool kCopies = true;
  static constexpr uint32_t kBulkBytes = 0;

  __device__ GatheredColumns(const WgradOperand& operand, int column, const WgradPart& tile)
      : operand_(operand), lane_(threadIdx.x % 32), warp_(threadIdx.x / 32), row_(tile.row), row_end_(tile.row_end) {
    const int chunk_column = column + lane_ % 8 * 8;
    from_ = static_cast<const char*>(operand.data) + chunk_column * 2;
    width_ = Width(chunk_column, operand.width);
    next_ = load_indices(row_);
  }

  __device__ void load(uint32_t to, uint32_t /*full*/) {
    if (half_ == 0) {
      index_ = next_;
      next_ = load_indices(row_ + 128);
    }
    to += swizzled(warp_ * 4 + lane_ / 8, lane_ % 8);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int index = __shfl_sync(~0u, index_, half_ * 16 + j * 4 + lane_ / 8);
      const char* from = from_ + static_cast<uint64_t>(static_cast<uint32_t>(max(index, 0))) * operand_.row_bytes;
#pragma unroll
      for (int box = 0; box < kBoxes; ++box)
        copy_16_bytes_async(to + j * 2048 + box * kBoxBytes, from + box * 128, index < 0 ? 0 : width_.bytes(box));
    }
    half_ ^= 1;
    row_ += 64;
  }

 private:
  /// Lane 16 h + 4 j + i: the row 16 j + 4 warp + i of block h of two.
  __device__ int load_indices(int row) const {
    row += lane_ / 16 * 64 + lane_ % 16 / 4 * 16 + warp_ * 4 + lane_ % 4;
    return row < row_end_ ? __ldg(operand_.rows_R + row) : -1;
  }

  const WgradOperand& operand_;
  const char* from_;
  Width width_;
  int lane_, warp_, row_, row_end_;
  int index_ = -1, next_, half_ = 0;
};

template <class LoadA, class LoadB>
__device__ void load_wgrad(const WgradParams& p, const WgradPipe& pipe) {
  constexpr bool kCopies = LoadA::kCopies || LoadB::kCopies;
  if (!kCopies && threadIdx.x >= 32) return;
  RingPosition<WgradPipe::kStages> at;
  TileCounter<kCopies ? 128 : 1> counter(p.tile_counters, pipe.counter());
  counter.ask();
  if (threadIdx.x < 32) {
    const int tiles = p.m_tiles * p.n_tiles, blocks = static_cast<int>(gridDim.x);
    WgradPlanner<WarpLanes>(p.offsets_E1, p.num_experts, tiles, blocks, wgrad_split()).plan();
    __syncwarp();
  }
  if constexpr (kCopies) named_barrier_sync(3, 128);
  if (!kCopies && threadIdx.x != 0) return;
  const WgradSplitSchedule schedule(p.offsets_E1, p.num_experts, p.m_tiles, p.n_tiles, wgrad_split());
  const auto announce_alone = [&](const WgradAnnounced& tile) {
    announce(pipe, at, tile);
    if constexpr (kCopies) barrier_arrive_after_copies(pipe.full(at.stage));
    at.advance();
  };
  const auto announced = [](const WgradPart& part) {
    return WgradAnnounced{.num_blocks = ceil_div(part.row_end - part.row, kWgradBlockRows),
                          .expert = static_cast<int16_t>(part.expert),
                          .m_tile = static_cast<uint16_t>(part.m_tile),
                          .n_tile = static_cast<uint16_t>(part.n_tile),
                          .slot = static_cast<uint16_t>(part.slot),
                          .num_pieces = static_cast<uint16_t>(part.num_pieces)};
  };
  for (WgradPart tile; schedule.find(counter.take(), tile);) {
    counter.ask();
    if (tile.kind == WgradPart::Kind::kNothing) continue;
    do {
      const WgradAnnounced what = announced(tile);
      if (what.num_blocks == 0) {
        announce_alone(what);
        continue;
      }
      LoadA a(p.a, tile.m_tile * 128, tile);
      LoadB b(p.b, tile.n_tile * kTileColumns, tile);
      for (int row = tile.row; row < tile.row_end; row += 64, at.advance()) {
        const uint32_t full = pipe.full(at.stage);
        barrier_wait(pipe.empty(at.stage), at.phase ^ 1);
        if (threadIdx.x == 0) {
          if (row == tile.row) pipe.set_tile(at.stage, what);
          barrier_arrive_expect(full, LoadA::kBulkBytes + LoadB::kBulkBytes);
        }
        a.load(pipe.a(at.stage), full);
        if constexpr (kCopies) __syncwarp();
        b.load(pipe.b(at.stage), full);
        if constexpr (kCopies) {
          __syncwarp();
          barrier_arrive_after_copies(full);
        }
      }
    } while (schedule.find_next(tile));
  }
  const int64_t strips = schedule.num_slot_strips();
  const int end = static_cast<int>(strips * (blockIdx.x + 1) / gridDim.x);
  for (int strip = static_cast<int>(strips * blockIdx.x / gridDim.x); strip < end;) {
    WgradPart sum;
    strip = schedule.find_sum(strip, end, sum);
    if (sum.strip == sum.strip_end) continue;
    WgradAnnounced what = announced(sum);
    what.strip = static_cast<uint8_t>(sum.strip);
    what.last_strip = static_cast<uint8_t>(sum.strip_end - 1);
    announce_alone(what);
  }
  announce_alone({.expert = -1});
}

template <class LoadA, class LoadB>
__global__ void __launch_bounds__(kThreads, 1) wgrad_kernel(const __grid_constant__ WgradParams params) {
  constexpr bool kCopies = LoadA::kCopies || LoadB::kCopies;
  constexpr int kLoaderRegisters = kCopies ? 88 : 40, kComputeRegisters = kCopies ? 208 : 232;
  static_assert(kRegistersSuffice<kLoaderRegisters, kComputeRegisters>);
  const WgradPipe pipe{shared_address(dynamic_shared<void>())};
  if (threadIdx.x == 0) {
    prefetch_tensor_map(params.dw);
    pipe.init_barriers(kCopies ? 128 : 0, 1);
  }
  __syncthreads();

  if (threadIdx.x < 128) {
    registers_lower<kLoaderRegisters>();
    load_wgrad<LoadA, LoadB>(params, pipe);
    return;
  }
  registers_raise<kComputeRegisters>();
  const int warpgroup = threadIdx.x / 128 - 1;
  Accumulator<WgradPipe, Major::kMN, Major::kMN, kCopies ? 128 : 0> accumulator(pipe, warpgroup);
  WgradStore out(params, pipe.staging(warpgroup), warpgroup);
  auto tile = accumulator.template next_tile<WgradAnnounced>();
  for (; tile.expert >= 0 && !tile.is_sum(); tile = accumulator.template next_tile<WgradAnnounced>()) {
    if (tile.num_blocks == 0) {
      accumulator.skip();
      out.store_zeros(tile);
      continue;
    }
    float acc[128];
    for (int block = 0; block < tile.num_blocks; ++block) accumulator.step(acc, block);
    accumulator.finish(acc);
    if (tile.num_pieces > 0)
      out.store_partial(tile, acc);
    else
      out.store(tile, acc);
  }
  // A loop of its own: in the one above the accumulators occupy their registers all the time, and sums need these.
  for (; tile.expert >= 0; tile = accumulator.template next_tile<WgradAnnounced>()) {
    accumulator.skip();
    out.sum_partials(tile, wgrad_split().num_pieces * params.m_tiles * params.n_tiles);
  }
  tma_store_wait<0>();
  if (threadIdx.x % 128 == 0) finish_tiles(params.tile_counters, 2 * gridDim.x);  // both warpgroups: they count pieces too
}

}  // namespace scatterlm::kernels::hopper

// Gradients of expert weights: dW[e] = sum over the expert's rows of A[row]^T B[row], tiles [128, 256], rows are the k of the
// product. Both operands lie in shared memory as their rows are in global memory, so the tensor cores transpose both.
//
// Blocks of 64 rows of one expert. Operands in expert order come by the copy engine through a shifted map (epilogue.cuh), which
// fills rows past the expert's end with zeros; gathered ones by cp.async, zeros likewise. An expert without rows has no blocks:
// its tile is zeros, stored without touching the ring.
//
// The rows of an expert with many of them are divided among blocks (wgrad_split.h says how, and why this cannot deadlock). A
// partial sum goes from the registers to its slot of the workspace as the threads hold it, 16 bytes a thread; who has stored
// one counts it. Sums of these wait until all are counted.
#pragma once
#include "kernels/grouped_gemm/hopper/epilogue.cuh"
#include "kernels/grouped_gemm/hopper/pipeline.cuh"
#include "kernels/grouped_gemm/hopper/tile_counter.cuh"
#include "kernels/grouped_gemm/update_pair.cuh"
#include "kernels/grouped_gemm/wgrad_split.h"

namespace scatterlm::kernels::hopper {

struct WgradOperand {
  CUtensorMap map;  ///< {width, 64, R + 64}, box {64, 64, 1}; unused if gathered
  const void* data;
  const int32_t* rows_R;  ///< gathered: row of `data` for each row in expert order
  uint32_t row_bytes;
  int width;
};

struct WgradParams {
  WgradOperand a, b;
  CUtensorMap dw;  ///< {n, m, E}, box of 128 bytes x 64 rows
  const int32_t* offsets_E1;
  int32_t* tile_counters;  ///< the upper half of the second counts partial sums, once for each warpgroup
  float4* partials;        ///< [slots, 32, 256]: slot, four accumulators, thread
  void* dw_data;
  int num_experts, m, n, m_tiles, n_tiles;
  DataType dw_type;
  GradientUpdate update;
};

/// What the loaders say of a part of the work (WgradPart). Sixteen bits suffice: routing has at most 4096 experts, and
/// WgradSplit bounds the slots.
struct WgradAnnounced {
  int num_blocks;  ///< of 64 rows to multiply; 0 for an expert without rows and for a sum of partial sums
  int16_t expert;  ///< -1: the end
  uint16_t m_tile, n_tile;
  uint16_t slot, num_pieces, piece;
};

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
  __device__ static int sum(int x) { return __reduce_add_sync(~0u, x); }
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
  for (WgradPart tile; schedule.find(counter.take(), tile);) {
    counter.ask();
    if (tile.kind == WgradPart::Kind::kNothing) continue;
    const WgradAnnounced announced{.num_blocks = ceil_div(tile.row_end - tile.row, kWgradBlockRows),
                                   .expert = static_cast<int16_t>(tile.expert),
                                   .m_tile = static_cast<uint16_t>(tile.m_tile),
                                   .n_tile = static_cast<uint16_t>(tile.n_tile),
                                   .slot = static_cast<uint16_t>(tile.slot),
                                   .num_pieces = static_cast<uint16_t>(tile.num_pieces),
                                   .piece = static_cast<uint16_t>(tile.piece)};
    if (announced.num_blocks == 0) {
      announce_alone(announced);
      continue;
    }
    LoadA a(p.a, tile.m_tile * 128, tile);
    LoadB b(p.b, tile.n_tile * kTileColumns, tile);
    for (int row = tile.row; row < tile.row_end; row += 64, at.advance()) {
      const uint32_t full = pipe.full(at.stage);
      barrier_wait(pipe.empty(at.stage), at.phase ^ 1);
      if (threadIdx.x == 0) {
        if (row == tile.row) pipe.set_tile(at.stage, announced);
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
  }
  announce_alone({.expert = -1});
}

/// A warpgroup's 64 x 256 of a tile of dW, in panels of 64 rows x 128 bytes.
class WgradStore {
 public:
  __device__ WgradStore(const WgradParams& p, uint32_t staging, int warpgroup) : p_(p), panels_(staging, warpgroup) {}

  __device__ void store(const WgradAnnounced& tile, const float (&acc)[128]) {
    if (p_.dw_type == DataType::kBfloat16) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t buffer = panels_.acquire(turn_++);
        panels_.write(buffer, [&](int k) { return pack_bf16(acc[i * 32 + 2 * k], acc[i * 32 + 2 * k + 1]); });
        send(tile, buffer, i * 64);
      }
    } else {
      const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint32_t buffer = panels_.acquire(turn_++);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float* x = acc + i * 16 + j * 4;
          const uint32_t address = buffer + swizzled(row, j * 2 + lane % 4 / 2) + lane % 2 * 8;
          store_shared(address, x[0], x[1]);
          store_shared(address + 8 * 128, x[2], x[3]);
        }
        send(tile, buffer, i * 32);
      }
    }
  }

  /// An expert without rows.
  __device__ void store_zeros(const WgradAnnounced& tile) {
    if (p_.update == GradientUpdate::kAdd) return;
    const uint32_t buffer = panels_.acquire(turn_++);
#pragma unroll
    for (int i = 0; i < 4; ++i) store_shared_zeros(buffer + (threadIdx.x % 128) * 16 + i * 2048);
    const int width = p_.dw_type == DataType::kBfloat16 ? 64 : 32;
    panels_.publish();
    if (panels_.leader()) {
      for (int column = 0; column < kTileColumns; column += width) copy_out(tile, buffer, column);
      tma_store_commit();
    }
  }

  /// A partial sum, to its slot.
  __device__ void store_partial(const WgradAnnounced& tile, const float (&acc)[128]) {
    float4* to = partials(tile.slot);
#pragma unroll
    for (int i = 0; i < 32; ++i) to[i * 256] = {acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]};
    panels_.sync();
    if (panels_.leader()) add_release(p_.tile_counters + 1, 1 << 16);
  }

  /// Part tile.piece of tile.num_pieces of a tile, in groups of 8 columns: the sums of all its pieces, in order.
  __device__ void sum_partials(const WgradAnnounced& tile, int num_slots) {
    if (panels_.leader()) wait_for_at_least(p_.tile_counters + 1, 2 * num_slots << 16);
    panels_.sync();
    constexpr int kGroups = kTileColumns / 8, kAtOnce = 4;
    const int pieces = tile.num_pieces, end = kGroups * (tile.piece + 1) / pieces;
    const int64_t step = int64_t{p_.m_tiles} * p_.n_tiles * kSlotSize;
    for (int first = kGroups * tile.piece / pieces; first < end; first += kAtOnce) {
      const float4* from = partials(tile.slot) + first * 256;
      float4 sums[kAtOnce] = {};
#pragma unroll 4
      for (int i = 0; i < pieces; ++i, from += step)
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j)
          if (first + j < end) add(sums[j], __ldcg(from + j * 256));
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
        if (first + j < end) update(tile, first + j, sums[j]);
    }
  }

 private:
  static constexpr int kSlotSize = 32 * 256;

  /// Of this thread, in a slot.
  __device__ float4* partials(int slot) const { return p_.partials + int64_t{slot} * kSlotSize + (threadIdx.x - 128); }

  __device__ static void add(float4& sum, const float4& x) {
    sum.x += x.x;
    sum.y += x.y;
    sum.z += x.z;
    sum.w += x.w;
  }

  /// Accumulators 4 group .. 4 group + 3: two neighbouring columns in each of two rows (wgmma.cuh).
  __device__ void update(const WgradAnnounced& tile, int group, const float4& sum) const {
    const int column = tile.n_tile * kTileColumns + group * 8 + static_cast<int>(threadIdx.x % 4) * 2;
    const int row = tile.m_tile * 128 + static_cast<int>(threadIdx.x / 32 - 4) * 16 + static_cast<int>(threadIdx.x % 32 / 4);
    if (column >= p_.n) return;
    const int64_t at = (int64_t{tile.expert} * p_.m + row) * p_.n + column;
    if (row < p_.m) update_pair(p_.dw_data, p_.dw_type, p_.update, at, sum.x, sum.y);
    if (row + 8 < p_.m) update_pair(p_.dw_data, p_.dw_type, p_.update, at + int64_t{8} * p_.n, sum.z, sum.w);
  }

  __device__ void send(const WgradAnnounced& tile, uint32_t buffer, int column) {
    panels_.publish();
    if (panels_.leader()) {
      copy_out(tile, buffer, column);
      tma_store_commit();
    }
  }

  __device__ void copy_out(const WgradAnnounced& tile, uint32_t buffer, int column) {
    const int x = tile.n_tile * kTileColumns + column, y = tile.m_tile * 128 + panels_.warpgroup() * 64;
    if (p_.update == GradientUpdate::kStore)
      tma_store(p_.dw, buffer, x, y, int{tile.expert});
    else
      tma_reduce_add(p_.dw, buffer, x, y, int{tile.expert});
  }

  const WgradParams& p_;
  Panels panels_;
  int turn_ = 0;
};

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
  WgradAnnounced tile;
  while ((tile = accumulator.template next_tile<WgradAnnounced>()).expert >= 0) {
    if (tile.num_blocks == 0) {
      accumulator.skip();
      if (tile.num_pieces > 0)
        out.sum_partials(tile, wgrad_split().num_slots);
      else
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
  tma_store_wait<0>();
  if (threadIdx.x % 128 == 0) finish_tiles(params.tile_counters, 2 * gridDim.x);  // both warpgroups: they count pieces too
}

}  // namespace scatterlm::kernels::hopper

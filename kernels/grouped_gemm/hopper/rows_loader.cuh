// Loading the operands of a grouped GEMM over rows. The matrix of the expert comes by the copy engine. Rows of A come the same
// way if they are in expert order; rows named by an index list come by cp.async: 128 threads, eight of them on the 128 bytes of
// a row, and land where the copy engine would have put them. So no gathered copy of A ever is in memory.
#pragma once
#include "kernels/grouped_gemm/hopper/pipeline.cuh"
#include "kernels/grouped_gemm/hopper/tile_counter.cuh"

namespace scatterlm::kernels::hopper {

/// What both roles know of a product.
struct RowsProblem {
  CUtensorMap a;  ///< {k, R}, box {64, 128}; unused if rows are gathered
  CUtensorMap b;  ///< K-major: {k, n, E} or {k, F, 2E}; MN-major: {n, k, E}
  const void* a_data;
  const int32_t* a_rows_R;
  const int32_t* offsets_E1;
  const int32_t* tiles_E3;
  int32_t* tile_counters;
  int num_experts;
  int n_tiles;
  int n;
  int k;
  const void* bias;  ///< [E, halves n]; nullptr: none

  __device__ int num_blocks() const { return ceil_div(k, kBlockK); }
  __device__ RowSchedule schedule() const { return {offsets_E1, tiles_E3, num_experts, n_tiles}; }
};

/// B [E, n, k]: kHalves boxes of 256 / kHalves rows. Two halves are the gate and the up rows of W1, so that a thread's
/// accumulators i and i + 64 are the gate and the up value of one column.
template <int kHalves>
struct WeightAsStored {
  static constexpr Major kMajor = Major::kK;
  __device__ static void load(uint32_t to, const RowsProblem& p, uint32_t barrier, const RowTile& tile, int block) {
    constexpr int kRows = kTileColumns / kHalves;
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
      tma_load(to + half * kRows * 128, p.b, barrier, block * kBlockK, tile.n_tile * kRows, tile.expert * kHalves + half);
  }

  /// To the finished accumulators of a tile.
  __device__ static void add_bias(float (&acc)[128], const RowsProblem& p, const RowTile& tile) {
    if (!p.bias) return;
    constexpr int kEightsPerHalf = kTileColumns / kHalves / 8;
    const int first = tile.n_tile * (kTileColumns / kHalves);
    const auto* of_expert = static_cast<const char*>(p.bias) + int64_t{tile.expert} * kHalves * p.n * 2;
#pragma unroll
    for (int i = 0; i < kTileColumns / 8; ++i) {  // a thread has two of eight neighbouring columns, in two rows
      const int column = first + i % kEightsPerHalf * 8;
      if (column >= p.n) continue;
      const int at = i / kEightsPerHalf * p.n + column + static_cast<int>(threadIdx.x % 4) * 2;
      const uint32_t pair = __ldg(reinterpret_cast<const uint32_t*>(of_expert + int64_t{at} * 2));
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        acc[4 * i + 2 * row] += low_bf16(pair);
        acc[4 * i + 2 * row + 1] += high_bf16(pair);
      }
    }
  }
};

/// B [E, k, n]: the tensor cores transpose it. Backward only, so without a bias.
struct WeightTransposed {
  static constexpr Major kMajor = Major::kMN;
  __device__ static void load(uint32_t to, const RowsProblem& p, uint32_t barrier, const RowTile& tile, int block) {
#pragma unroll
    for (int box = 0; box < kTileColumns / 64; ++box)
      tma_load(to + box * kBoxBytes, p.b, barrier, tile.n_tile * kTileColumns + box * 64, block * kBlockK, tile.expert);
  }
  __device__ static void add_bias(float (&)[128], const RowsProblem&, const RowTile&) {}
};

/// Behind the last.
__device__ inline RowTile no_tile() { return {.expert = 0, .row = -1, .row_end = 0, .n_tile = 0}; }

struct ContiguousRows {
  static constexpr int kCopyingThreads = 0;
  static constexpr int kLoaderRegisters = 40, kComputeRegisters = 232;

  template <class Weight, class Pipe>
  __device__ static void run(const RowsProblem& p, const Pipe& pipe) {
    if (threadIdx.x != 0) return;
    RingPosition<Pipe::kStages> at;
    TileCounter<1> counter(p.tile_counters, pipe.counter());
    counter.ask();
    auto schedule = p.schedule();
    for (RowTile tile; schedule.find(counter.take(), tile);) {
      counter.ask();
      for (int block = 0; block < p.num_blocks(); ++block, at.advance()) {
        const uint32_t full = pipe.full(at.stage);
        barrier_wait(pipe.empty(at.stage), at.phase ^ 1);
        if (block == 0) pipe.set_tile(at.stage, tile);
        barrier_arrive_expect(full, kStageA + kStageB);
        tma_load(pipe.a(at.stage), p.a, full, block * kBlockK, tile.row);
        Weight::load(pipe.b(at.stage), p, full, tile, block);
      }
    }
    counter.finish();
    announce(pipe, at, no_tile());
  }
};

struct GatheredRows {
  static constexpr int kCopyingThreads = 128;
  static constexpr int kLoaderRegisters = 56, kComputeRegisters = 224;

  /// Thread t copies chunk t % 8 of rows t / 8 + 16 j: one address each, fixed steps in shared memory.
  template <class Weight, class Pipe>
  __device__ static void run(const RowsProblem& p, const Pipe& pipe) {
    constexpr int kRowsPerThread = 8;
    constexpr int kTakeAt = 3;  // the number has come by then, and the indices have the rest of the tile to come
    const int chunk = threadIdx.x % 8, first_row = threadIdx.x / 8;
    const uint32_t to = swizzled(first_row, chunk), row_bytes = p.k * 2;
    int index[kRowsPerThread];  // of the tile to come
    const auto load_indices = [&](const RowTile& tile) {
#pragma unroll
      for (int j = 0; j < kRowsPerThread; ++j) {
        const int row = tile.row + first_row + j * 16;
        index[j] = row < tile.row_end ? __ldg(p.a_rows_R + row) : -1;
      }
    };

    RingPosition<Pipe::kStages> at;
    TileCounter<kCopyingThreads> counter(p.tile_counters, pipe.counter());
    counter.ask();
    auto schedule = p.schedule();
    RowTile tile, coming;
    const auto take_next = [&] {
      const bool more = schedule.find(counter.take(), coming);
      if (more) load_indices(coming);
      return more;
    };
    for (bool more = take_next(); more;) {
      tile = coming;
      counter.ask();
      const char* from[kRowsPerThread];
      uint32_t inside = 0;
#pragma unroll
      for (int j = 0; j < kRowsPerThread; ++j) {
        from[j] = static_cast<const char*>(p.a_data) + chunk * 16 +
                  static_cast<uint64_t>(static_cast<uint32_t>(max(index[j], 0))) * row_bytes;
        inside |= (index[j] >= 0 ? 1u : 0u) << j;
      }
      for (int block = 0; block < p.num_blocks(); ++block, at.advance()) {
        const uint32_t full = pipe.full(at.stage);
        barrier_wait(pipe.empty(at.stage), at.phase ^ 1);
        if (threadIdx.x == 0) {
          if (block == 0) pipe.set_tile(at.stage, tile);
          barrier_arrive_expect(full, kStageB);
          Weight::load(pipe.b(at.stage), p, full, tile, block);
        }
        const uint32_t now = block * kBlockK + chunk * 8 < p.k ? inside : 0;  // columns past k are zeros too
#pragma unroll
        for (int j = 0; j < kRowsPerThread; ++j)
          copy_16_bytes_async(pipe.a(at.stage) + to + j * 2048, from[j] + block * 128, now >> j & 1 ? 16 : 0);
        barrier_arrive_after_copies(full);
        if (block == min(kTakeAt, p.num_blocks() - 1)) more = take_next();
      }
    }
    counter.finish();
    announce(pipe, at, no_tile());
    barrier_arrive_after_copies(pipe.full(at.stage));
  }
};

}  // namespace scatterlm::kernels::hopper

// What becomes of a finished tile of a grouped GEMM over rows: policies of rows_kernel.cuh. It calls begin(tile) during the
// tile's products, end_of_tile() after them, and store(step, packed) for each of kStoreSteps steps while the next tile is
// multiplied: one step with a block of k, or up to kMaxStepsPerBlock where a tile has no more blocks than steps. A warpgroup
// stores its 64 rows in panels of 64 columns: registers -> shared memory (stmatrix) -> global memory (copy engine).
//
// kStages is the depth of the ring that leaves room for kStagingBytes of panels for each computing warpgroup; kBarrierArrivals
// is how many threads announce a load to one of the epilogue's own barriers.
//
// Row bounds without rewriting tensor maps: outputs are 3D maps {columns, 64, R + 64} over the same memory moved back by 64
// rows, both row strides the row length. Element (x, y, z) is row y + z - 64, so a box of 64 rows at (x, 64 - v, row + v)
// starts at `row`, and what lies past its first v rows is outside of the second dimension and clipped.
#pragma once
#include "kernels/grouped_gemm/activations.cuh"
#include "kernels/grouped_gemm/hopper/pipeline.cuh"

namespace scatterlm::kernels::hopper {

/// The 64 x 64 panels of one warpgroup.
class Panels {
 public:
  static constexpr int kBytes = kBoxBytes;

  __device__ Panels(uint32_t staging, int warpgroup) : staging_(staging), warpgroup_(warpgroup) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    first_ = warp * 2048 + (lane & 15) * 128;
    column_ = lane >> 4;
    row_ = lane & 7;
  }

  __device__ int warpgroup() const { return warpgroup_; }
  __device__ bool leader() const { return threadIdx.x % 128 == 0; }
  __device__ uint32_t buffer(int i) const { return staging_ + i * kBytes; }
  __device__ void sync() const { named_barrier_sync(1 + warpgroup_, 128); }
  /// Buffer 0 or 1, by turns, once the copy engine has read what it held before.
  __device__ uint32_t acquire(int turn) const {
    if (leader()) tma_store_wait_read<1>();
    sync();
    return buffer(turn & 1);
  }
  /// Fills a panel: value(k), k < 16, is this lane's pair 2k, 2k + 1 of the panel's accumulators.
  template <class Value>
  __device__ void write(uint32_t buffer, Value&& value) const {
#pragma unroll
    for (int group = 0; group < 4; ++group) {
      const int k = group * 4;
      store_matrices(buffer + offset(group), {value(k), value(k + 1), value(k + 2), value(k + 3)});
    }
  }
  /// All threads have written; the copy engine may read.
  __device__ void publish() const {
    fence_proxy_async();
    sync();
  }
  /// Offset in a panel that this lane gives to the matrix loads and stores of columns 16 group .. 16 group + 15.
  __device__ uint32_t offset(int group) const { return first_ + (((group * 2 + column_) ^ row_) << 4); }

 private:
  uint32_t staging_, first_;
  int warpgroup_, column_, row_;
};

/// Which rows of which tile a warpgroup is storing.
struct WarpgroupRows {
  int row = 0;    ///< first of 64
  int count = 0;  ///< how many of them are the expert's; may be <= 0
  int n_tile = 0;

  __device__ void set(const RowTile& tile, int warpgroup) {
    row = tile.row + warpgroup * 64;
    count = min(tile.row_end - row, 64);
    n_tile = tile.n_tile;
  }
  /// Coordinates of the map: y = 64 - count, z = row + count.
  __device__ int y() const { return 64 - count; }
  __device__ int z() const { return row + count; }
};

/// C = the product.
struct StoreEpilogue {
  struct Params {
    CUtensorMap c;  ///< {n, 64, R + 64}, box {64, 64, 1}
  };
  static constexpr int kStages = 4, kStoreSteps = 4, kMaxStepsPerBlock = 1, kBarrierArrivals = 1,
                       kStagingBytes = 2 * Panels::kBytes;

  __device__ StoreEpilogue(const Params& params, uint32_t staging, uint32_t /*barriers*/, int warpgroup)
      : params_(params), panels_(staging, warpgroup) {}

  __device__ void begin(const RowTile& tile) { rows_.set(tile, panels_.warpgroup()); }
  __device__ void end_of_tile() {}

  __device__ void store(int i, const uint32_t (&packed)[64]) {
    const uint32_t buffer = panels_.acquire(i);
    panels_.write(buffer, [&](int k) { return packed[i * 16 + k]; });
    panels_.publish();
    if (panels_.leader()) {
      if (rows_.count > 0) tma_store(params_.c, buffer, rows_.n_tile * kTileColumns + i * 64, rows_.y(), rows_.z());
      tma_store_commit();
    }
  }

 private:
  const Params& params_;
  Panels panels_;
  WarpgroupRows rows_;
};

/// C = the product, row m in row c_rows[m]: 16 bytes a thread, eight threads on the 128 bytes of a row's panel.
class ScatterEpilogue {
 public:
  struct Params {
    void* c;
    const int32_t* c_rows_R;
    int n;
  };
  static constexpr int kStages = 4, kStoreSteps = 4, kMaxStepsPerBlock = 1, kBarrierArrivals = 1,
                       kStagingBytes = 2 * Panels::kBytes;

  __device__ ScatterEpilogue(const Params& params, uint32_t staging, uint32_t /*barriers*/, int warpgroup)
      : params_(params), panels_(staging, warpgroup) {}

  __device__ void begin(const RowTile& tile) {
    rows_.set(tile, panels_.warpgroup());
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i)
      c_row_[i] = row(i) < rows_.count ? __ldg(params_.c_rows_R + rows_.row + row(i)) : -1;
  }
  __device__ void end_of_tile() {}

  /// Two buffers: who writes panel i has passed the barrier of panel i - 1, so everyone has read panel i - 2.
  __device__ void store(int i, const uint32_t (&packed)[64]) {
    const uint32_t buffer = panels_.buffer(i & 1);
    panels_.write(buffer, [&](int k) { return packed[i * 16 + k]; });
    panels_.sync();
    const int column = rows_.n_tile * kTileColumns + i * 64 + chunk() * 8;
    if (column >= params_.n) return;
#pragma unroll
    for (int j = 0; j < kRowsPerThread; ++j) {
      if (c_row_[j] < 0) continue;
      auto* to = static_cast<char*>(params_.c) + (static_cast<int64_t>(c_row_[j]) * params_.n + column) * 2;
      *reinterpret_cast<uint4*>(to) = load_shared(buffer + swizzled(row(j), chunk()));
    }
  }

 private:
  static constexpr int kRowsPerThread = 4;
  __device__ static int row(int i) { return i * 16 + threadIdx.x % 128 / 8; }
  __device__ static int chunk() { return threadIdx.x % 8; }

  const Params& params_;
  Panels panels_;
  WarpgroupRows rows_;
  int c_row_[kRowsPerThread];
};

/// H = the product, rounded to bf16, and A = activation(H).
template <class Policy>
class ActivationEpilogue {
 public:
  struct Params {
    CUtensorMap h;    ///< {F, halves, 64, R + 64}, box {64, 1, 64, 1}
    CUtensorMap act;  ///< {F, 64, R + 64}, box {64, 64, 1}
  };
  static constexpr int kHalves = Policy::kHalves;
  static constexpr int kActPanels = 4 / kHalves;  ///< the tile has this many panels of F columns
  static constexpr int kStages = 4, kStoreSteps = 4 + kActPanels, kMaxStepsPerBlock = 1, kBarrierArrivals = 1;
  static constexpr int kStagingBytes = 2 * Panels::kBytes;

  __device__ ActivationEpilogue(const Params& params, uint32_t staging, uint32_t /*barriers*/, int warpgroup)
      : params_(params), panels_(staging, warpgroup) {}

  __device__ void begin(const RowTile& tile) { rows_.set(tile, panels_.warpgroup()); }
  __device__ void end_of_tile() {}

  __device__ void store(int i, const uint32_t (&packed)[64]) {
    const uint32_t buffer = panels_.acquire(i);
    panels_.write(buffer, [&](int k) { return i < 4 ? packed[i * 16 + k] : activated(packed, (i - 4) * 16 + k); });
    panels_.publish();
    if (panels_.leader()) {
      const int column = (rows_.n_tile * kActPanels + i % kActPanels) * 64;
      if (rows_.count > 0) {
        if (i < 4)
          tma_store(params_.h, buffer, column, i / kActPanels, rows_.y(), rows_.z());
        else
          tma_store(params_.act, buffer, column, rows_.y(), rows_.z());
      }
      tma_store_commit();
    }
  }

 private:
  /// Two neighbouring columns. The up half stands 32 registers behind the gate half.
  __device__ static uint32_t activated(const uint32_t (&packed)[64], int i) {
    return activate_pair<Policy>(packed[i], packed[(i + 32) % 64]);
  }

  const Params& params_;
  Panels panels_;
  WarpgroupRows rows_;
};

}  // namespace scatterlm::kernels::hopper

// Where the tiles of a gradient of expert weights go (wgrad_kernel.cuh): to dW, or, of a divided expert, to the workspace and
// from there to dW.
//
// A partial sum goes from the registers to its slot of the workspace as the threads hold it, 16 bytes a thread; who has stored
// one counts it. Sums of these wait until all are counted. They read many partial sums at once: one after the other, each would
// cost a trip to L2, which together took a third of the kernel's time.
#pragma once
#include "kernels/grouped_gemm/hopper/epilogue.cuh"
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
  float4* partials;        ///< [slots, kWgradStrips, 32]: slot; group of four accumulators and warp; lane
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
  uint16_t slot, num_pieces;
  uint8_t strip, last_strip;  ///< of a sum of partial sums

  __device__ bool is_sum() const { return num_blocks == 0 && num_pieces > 0; }
};

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

  /// Strips of a tile: the sums of all its pieces, in order.
  __device__ void sum_partials(const WgradAnnounced& tile, int num_slots) {
    if (panels_.leader()) wait_for_at_least(p_.tile_counters + 1, 2 * num_slots << 16);
    panels_.sync();
    if (tile.num_pieces <= 4)
      sum_strips<4, 4>(tile);
    else
      sum_strips<1, 16>(tile);
  }

 private:
  static constexpr int kSlotSize = kWgradStrips * 32;

  /// Of this thread, in a slot.
  __device__ float4* partials(int slot) const { return p_.partials + int64_t{slot} * kSlotSize + (threadIdx.x - 128); }

  /// The warps take strips by turns, kStrips at once, and read kPieces partial sums of each before they add them.
  template <int kStrips, int kPieces>
  __device__ void sum_strips(const WgradAnnounced& tile) const {
    const int lane = threadIdx.x % 32;
    const int64_t step = int64_t{p_.m_tiles} * p_.n_tiles * kSlotSize;
    for (int first = tile.strip + threadIdx.x / 32 - 4; first <= tile.last_strip; first += kComputeWarps * kStrips) {
      float2 before[kStrips][2] = {};
      float4 sums[kStrips] = {};
#pragma unroll
      for (int i = 0; i < kStrips; ++i) load_before(tile, first + i * kComputeWarps, before[i]);
      for (int piece = 0; piece < tile.num_pieces; piece += kPieces) {
        const float4* from = p_.partials + int64_t{tile.slot} * kSlotSize + piece * step + first * 32 + lane;
        float4 read[kPieces][kStrips];
#pragma unroll
        for (int j = 0; j < kPieces; ++j, from += step)
#pragma unroll
          for (int i = 0; i < kStrips; ++i) {
            const bool is_there = piece + j < tile.num_pieces && first + i * kComputeWarps <= tile.last_strip;
            read[j][i] = is_there ? __ldcg(from + i * kComputeWarps * 32) : float4{};
          }
#pragma unroll
        for (int j = 0; j < kPieces; ++j)
#pragma unroll
          for (int i = 0; i < kStrips; ++i) add(sums[i], read[j][i]);
      }
#pragma unroll
      for (int i = 0; i < kStrips; ++i) store_sum(tile, first + i * kComputeWarps, before[i], sums[i]);
    }
  }

  __device__ static void add(float4& sum, const float4& x) {
    sum.x += x.x;
    sum.y += x.y;
    sum.z += x.z;
    sum.w += x.w;
  }

  /// Calls f(half, at) for each half of a lane's float4 of a strip, two neighbouring elements of dW: two columns of a row, and
  /// the same columns 8 rows below (wgmma.cuh).
  template <class F>
  __device__ void for_pairs(const WgradAnnounced& tile, int strip, F&& f) const {
    const int column = tile.n_tile * kTileColumns + strip / kComputeWarps * 8 + static_cast<int>(threadIdx.x % 4) * 2;
    const int row = tile.m_tile * 128 + strip % kComputeWarps * 16 + static_cast<int>(threadIdx.x % 32 / 4);
    if (strip > tile.last_strip || column >= p_.n) return;
    const int64_t at = (int64_t{tile.expert} * p_.m + row) * p_.n + column;
    if (row < p_.m) f(0, at);
    if (row + 8 < p_.m) f(1, at + int64_t{8} * p_.n);
  }
  __device__ void load_before(const WgradAnnounced& tile, int strip, float2 (&before)[2]) const {
    if (p_.update == GradientUpdate::kStore) return;
    for_pairs(tile, strip, [&](int half, int64_t at) { before[half] = load_pair(p_.dw_data, p_.dw_type, at); });
  }
  __device__ void store_sum(const WgradAnnounced& tile, int strip, const float2 (&before)[2], const float4& sum) const {
    for_pairs(tile, strip, [&](int half, int64_t at) {
      const float x = half ? sum.z : sum.x, y = half ? sum.w : sum.y;
      store_pair(p_.dw_data, p_.dw_type, at, before[half].x + x, before[half].y + y);
    });
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

}  // namespace scatterlm::kernels::hopper

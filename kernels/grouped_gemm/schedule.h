// Which tile a block computes next. Plain arithmetic on the device's offsets, the same on the host, where tests run it.
#pragma once
#include <cstdint>

#include "kernels/device/host_device.h"

namespace scatterlm::kernels {

constexpr int kTileColumns = 256;  ///< of the kernels for Hopper

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// One tile of a grouped GEMM over rows.
struct RowTile {
  int expert;
  int row;      ///< first row
  int row_end;  ///< one past the expert's last row; may be less than row + 128
  int n_tile;   ///< tile in the columns
};

/// Tiles `first`, `first + step`, ... of all experts in order. Inside an expert tiles go down the rows in strips of kStrip row
/// tiles, so that blocks which run together share columns of the weight and few rows: an expert that takes all tokens still
/// works out of L2.
class RowSchedule {
 public:
  static constexpr int kStrip = 16;

  SCATTERLM_HOST_DEVICE RowSchedule(const int32_t* offsets_E1, const int32_t* tile_offsets_E1, int num_experts, int n_tiles,
                                    int first, int step)
      : offsets_(offsets_E1),
        tile_offsets_(tile_offsets_E1),
        num_experts_(num_experts),
        n_tiles_(n_tiles),
        next_(first),
        step_(step),
        total_(tile_offsets_E1[num_experts] * n_tiles) {}

  /// False when there are no more.
  SCATTERLM_HOST_DEVICE bool next(RowTile& tile) {
    if (next_ >= total_) return false;
    find_expert(next_ / n_tiles_);
    const int row_tiles = tile_offsets_[expert_ + 1] - tile_offsets_[expert_];
    const int index = next_ - tile_offsets_[expert_] * n_tiles_;
    const int strip = index / (kStrip * n_tiles_), in_strip = index - strip * kStrip * n_tiles_;
    const int left = row_tiles - strip * kStrip, height = left < kStrip ? left : kStrip;
    tile.expert = expert_;
    tile.n_tile = in_strip / height;
    tile.row = offsets_[expert_] + (strip * kStrip + in_strip - tile.n_tile * height) * 128;
    tile.row_end = offsets_[expert_ + 1];
    next_ += step_;
    return true;
  }

 private:
  /// The expert whose row tiles contain this one, by bisection from the present expert on; experts without rows have none.
  SCATTERLM_HOST_DEVICE void find_expert(int row_tile) {
    if (row_tile < tile_offsets_[expert_ + 1]) return;
    int low = expert_ + 1, high = num_experts_ - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (row_tile < tile_offsets_[middle + 1])
        high = middle;
      else
        low = middle + 1;
    }
    expert_ = low;
  }

  const int32_t* offsets_;
  const int32_t* tile_offsets_;
  int num_experts_, n_tiles_, next_, step_, total_;
  int expert_ = 0;
};

/// One tile of the gradient of one expert's weight.
struct WgradTile {
  int expert, m_tile, n_tile;
  int row, row_end;  ///< the expert's rows, over which it sums
};

/// Tiles of all experts in order, down the columns of dW first, so that neighbours read the same rows of b.
class WgradSchedule {
 public:
  SCATTERLM_HOST_DEVICE WgradSchedule(const int32_t* offsets_E1, int num_experts, int m_tiles, int n_tiles, int first, int step)
      : offsets_(offsets_E1),
        m_tiles_(m_tiles),
        n_tiles_(n_tiles),
        next_(first),
        step_(step),
        total_(num_experts * m_tiles * n_tiles) {}

  SCATTERLM_HOST_DEVICE bool next(WgradTile& tile) {
    if (next_ >= total_) return false;
    const int per_expert = m_tiles_ * n_tiles_;
    tile.expert = next_ / per_expert;
    const int index = next_ - tile.expert * per_expert;
    tile.n_tile = index / m_tiles_;
    tile.m_tile = index - tile.n_tile * m_tiles_;
    tile.row = offsets_[tile.expert];
    tile.row_end = offsets_[tile.expert + 1];
    next_ += step_;
    return true;
  }

 private:
  const int32_t* offsets_;
  int m_tiles_, n_tiles_, next_, step_, total_;
};

}  // namespace scatterlm::kernels

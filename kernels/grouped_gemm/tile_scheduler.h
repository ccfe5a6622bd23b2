// Which tile has which number. Plain arithmetic on the device's offsets, the same on the host, where tests run it.
#pragma once
#include <cstdint>

#include "kernels/device/ceil_div.h"
#include "kernels/device/host_device.h"

namespace scatterlm::kernels {

/// One tile of a grouped GEMM over rows.
struct RowTile {
  int expert;
  int row;      ///< first row
  int row_end;  ///< one past the expert's last row; may be less than row + 128
  int n_tile;   ///< tile in the columns
};

/// Tiles of all experts in order. Inside an expert tiles go down the rows in strips of kStrip row tiles, so that blocks which
/// run together share columns of the weight and few rows: an expert that takes all tokens still works out of L2.
class RowSchedule {
 public:
  static constexpr int kStrip = 16;

  SCATTERLM_HOST_DEVICE RowSchedule(const int32_t* offsets_E1, const int32_t* tiles_E3, int num_experts, int n_tiles)
      : offsets_(offsets_E1),
        tile_offsets_(tiles_E3),
        num_experts_(num_experts),
        n_tiles_(n_tiles),
        total_(tiles_E3[num_experts] * n_tiles) {
    enter(0);
  }

  /// False when there is no tile of this number, which is not below the one of the last call.
  SCATTERLM_HOST_DEVICE bool find(int number, RowTile& tile) {
    if (number >= total_) return false;
    if (number >= end_) find_expert(number);
    int index = number - begin_, first_row_tile = 0, height = row_tiles_;
    if (row_tiles_ > kStrip) {
      const int strip = index / (kStrip * n_tiles_), left = row_tiles_ - strip * kStrip;
      index -= strip * kStrip * n_tiles_;
      first_row_tile = strip * kStrip;
      height = left < kStrip ? left : kStrip;
    }
    tile.expert = expert_;
    tile.n_tile = index / height;
    tile.row = offsets_[expert_] + (first_row_tile + index - tile.n_tile * height) * 128;
    tile.row_end = offsets_[expert_ + 1];
    return true;
  }

 private:
  SCATTERLM_HOST_DEVICE void enter(int expert) {
    expert_ = expert;
    row_tiles_ = tile_offsets_[expert + 1] - tile_offsets_[expert];
    begin_ = tile_offsets_[expert] * n_tiles_;
    end_ = begin_ + row_tiles_ * n_tiles_;
  }

  /// The expert of a tile behind those of the present one: mostly among the next few, otherwise by bisection.
  SCATTERLM_HOST_DEVICE void find_expert(int number) {
    int low = expert_ + 1;
    for (const int near = low + 4; low < near && low < num_experts_; ++low)
      if (number < tile_offsets_[low + 1] * n_tiles_) return enter(low);
    int high = num_experts_ - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (number < tile_offsets_[middle + 1] * n_tiles_)
        high = middle;
      else
        low = middle + 1;
    }
    enter(low);
  }

  const int32_t* offsets_;
  const int32_t* tile_offsets_;
  int num_experts_, n_tiles_, total_;
  int expert_, row_tiles_, begin_, end_;  ///< the present expert and its tiles
};

/// One tile of the gradient of one expert's weight.
struct WgradTile {
  int expert, m_tile, n_tile;
  int row, row_end;  ///< the expert's rows, over which it sums
};

/// Tiles of all experts in order, down the columns of dW first, so that neighbours read the same rows of b.
class WgradSchedule {
 public:
  SCATTERLM_HOST_DEVICE WgradSchedule(const int32_t* offsets_E1, int num_experts, int m_tiles, int n_tiles)
      : offsets_(offsets_E1), m_tiles_(m_tiles), n_tiles_(n_tiles), total_(num_experts * m_tiles * n_tiles) {}

  /// False when there is no tile of this number.
  SCATTERLM_HOST_DEVICE bool find(int number, WgradTile& tile) const {
    if (number >= total_) return false;
    const int per_expert = m_tiles_ * n_tiles_;
    tile.expert = number / per_expert;
    const int index = number - tile.expert * per_expert;
    tile.n_tile = index / m_tiles_;
    tile.m_tile = index - tile.n_tile * m_tiles_;
    tile.row = offsets_[tile.expert];
    tile.row_end = offsets_[tile.expert + 1];
    return true;
  }

 private:
  const int32_t* offsets_;
  int m_tiles_, n_tiles_, total_;
};

}  // namespace scatterlm::kernels

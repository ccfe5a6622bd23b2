// The tile of the portable kernels: kTileRows rows, kTileColumns columns, in warp tiles of 64 x 64, over a ring of kStages
// blocks of kBlockK along k.
#pragma once
#include <cstdint>

#include "kernels/grouped_gemm.h"

namespace scatterlm::kernels::portable {

constexpr int kTileColumns = 128;
constexpr int kBlockK = 32;
constexpr int kStages = 3;  ///< two blocks of 48 KB fit every chip; 256 columns are 2 % faster only in 144 KB, which few have

constexpr int kWarpTile = 64;
constexpr int kWarpsAlongRows = kTileRows / kWarpTile;
constexpr int kThreads = kWarpsAlongRows * (kTileColumns / kWarpTile) * 32;
/// A warp tile takes 128 registers for its sums and 64 for fragments: 256 threads fill the registers of a multiprocessor.
constexpr int kBlocksPerSm = 256 / kThreads;

constexpr uint32_t kStageBytes = (kTileRows + kTileColumns) * kBlockK * 2;
constexpr uint32_t kTileBytes = kTileRows * kTileColumns * 2;  ///< as bf16
constexpr uint32_t kRingBytes = kStages * kStageBytes;
constexpr uint32_t kSharedBytes = kRingBytes > kTileBytes ? kRingBytes : kTileBytes;

}  // namespace scatterlm::kernels::portable

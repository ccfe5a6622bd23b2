// How matrices of bf16 lie in shared memory. Everything starts at a multiple of 1024 bytes and has the 128-byte swizzle of TMA:
// rows of 128 bytes whose 16-byte chunk c stands at c ^ (row % 8).
//
//   K-major   [rows][64 k]: one box of 64 columns; 64 rows take 8192 bytes
//   MN-major  boxes [64 k][64 mn] of 8192 bytes, one after another in mn
#pragma once
#include <cstdint>

#include "kernels/device/host_device.h"
#include "kernels/device/wgmma.cuh"

namespace scatterlm::kernels {

constexpr int kBlockK = 64;             ///< k of one stage: 128 bytes of bf16, the width of the swizzle
constexpr uint32_t kBoxBytes = 8192;    ///< 64 rows of 128 bytes
constexpr uint32_t kBytesPer64 = 8192;  ///< 64 rows (m or n) of an operand with 64 k, in either layout

/// Byte offset of 16-byte chunk `chunk` of row `row`.
SCATTERLM_HOST_DEVICE inline uint32_t swizzled(int row, int chunk) {
  return static_cast<uint32_t>(row * 128 + ((chunk ^ (row & 7)) << 4));
}

/// Matrix descriptor of an operand that starts at this shared address (PTX ISA 9.0, section 9.7.15.5.1): address, step between
/// 64-column boxes (MN-major only), step between groups of 8 rows, 128-byte swizzle.
template <Major kMajor>
SCATTERLM_HOST_DEVICE inline uint64_t matrix_descriptor(uint32_t address) {
  constexpr uint64_t kBoxStep = kMajor == Major::kMN ? kBoxBytes >> 4 : 1, kGroupStep = 1024 >> 4;
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | kBoxStep << 16 | kGroupStep << 32 | uint64_t{1} << 62;
}

/// Added to a descriptor for the next 16 k: 32 bytes along the row, or 16 rows of 128 bytes.
template <Major kMajor>
constexpr uint64_t kNext16 = kMajor == Major::kMN ? 2048 >> 4 : 32 >> 4;

}  // namespace scatterlm::kernels

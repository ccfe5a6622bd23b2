// In place of kernels/device/wgmma.cuh: matrix products on the machine of machine.h. Each thread computes the elements that it
// would hold, from what the descriptors point to when it waits for them.
#pragma once
#include "tests/kernels/emulated/cuda_language.h"

namespace scatterlm::kernels {

enum class Major : int { kK = 0, kMN = 1 };

inline void wgmma_fence() {}
inline void wgmma_commit() { emulated::commit(emulated::Queue::kProducts); }
/// On the chip all lanes of a warp execute this together: none goes on before the products of all are done.
template <int kPending>
void wgmma_wait() {
  emulated::wait(emulated::Queue::kProducts, kPending);
  emulated::warp_exchange(0);
}
inline void wgmma_pin(float (&)[128]) {}

namespace emulated_wgmma {

/// Element (mn, k) of an operand with the 128-byte swizzle.
template <Major kMajor>
float element(uint64_t descriptor, int mn, int k) {
  const auto field = [&](int shift) { return static_cast<uint32_t>(descriptor >> shift & 0x3FFF) << 4; };
  const uint32_t start = field(0), box_step = field(16), group_step = field(32);
  uint32_t address = kMajor == Major::kK ? start + mn / 8 * group_step + mn % 8 * 128 + k * 2
                                         : start + mn / 64 * box_step + k / 8 * group_step + k % 8 * 128 + mn % 64 * 2;
  address ^= (address >> 7 & 7) << 4;
  uint16_t half;
  std::memcpy(&half, emulated::shared(address), 2);
  const uint32_t bits = uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

}  // namespace emulated_wgmma

template <Major kA, Major kB>
void wgmma_m64n256k16(float (&d)[128], uint64_t a, uint64_t b, int accumulate) {
  const int lane = static_cast<int>(threadIdx.x % 32), row = static_cast<int>(threadIdx.x / 32 % 4) * 16 + lane / 4;
  emulated::enqueue(emulated::Queue::kProducts, [&d, a, b, accumulate, lane, row] {
    using emulated_wgmma::element;
    float left[2][16];
    for (int k = 0; k < 16; ++k) {
      left[0][k] = element<kA>(a, row, k);
      left[1][k] = element<kA>(a, row + 8, k);
    }
    for (int j = 0; j < 32; ++j) {
      for (int c = 0; c < 2; ++c) {
        float sum[2] = {accumulate ? d[4 * j + c] : 0.0f, accumulate ? d[4 * j + 2 + c] : 0.0f};
        for (int k = 0; k < 16; ++k) {
          const float right = element<kB>(b, 8 * j + 2 * (lane % 4) + c, k);
          sum[0] += left[0][k] * right;
          sum[1] += left[1][k] * right;
        }
        d[4 * j + c] = sum[0];
        d[4 * j + 2 + c] = sum[1];
      }
    }
  });
}

}  // namespace scatterlm::kernels

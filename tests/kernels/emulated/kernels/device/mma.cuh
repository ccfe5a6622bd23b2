// In place of kernels/device/mma.cuh: matrix products of a warp on the machine of machine.h.
#pragma once
#include "kernels/device/ptx.cuh"

namespace scatterlm::kernels {

namespace emulated_mma {

inline void multiply(const emulated::Fragments* lanes) {
  const auto half = [](uint32_t packed, int i) { return i ? high_bf16(packed) : low_bf16(packed); };
  float a[16][16], b[8][16];  // b transposed
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k) a[row][k] = half(lanes[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2], k % 2);
  for (int n = 0; n < 8; ++n)
    for (int k = 0; k < 16; ++k) b[n][k] = half(lanes[n * 4 + k % 8 / 2].b[k / 8], k % 2);
  for (int row = 0; row < 16; ++row)
    for (int n = 0; n < 8; ++n) {
      float& d = lanes[row % 8 * 4 + n / 2].d[row / 8 * 2 + n % 2];
      for (int k = 0; k < 16; ++k) d += a[row][k] * b[n][k];
    }
}

}  // namespace emulated_mma

inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b_0, uint32_t b_1) {
  emulated::warp_product({{a[0], a[1], a[2], a[3]}, {b_0, b_1}, d}, emulated_mma::multiply);
}

}  // namespace scatterlm::kernels

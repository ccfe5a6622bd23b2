// Matrix products of a warp (mma.sync, PTX ISA 9.0, section 9.7.14): D [16, 8] fp32 += A [16, 16] B [16, 8] of bf16, all in
// registers, on every chip from sm_80 on.
//
// Lane l, with g = l / 4 and t = 2 (l % 4): a[i] holds A (g + 8 (i % 2), t + 8 (i / 2) + {0, 1}), b[i] holds B (t + 8 i + {0,
// 1}, g), d[i] is D (g + 8 (i / 2), t + i % 2). Tests replace this file by tests/kernels/emulated.
#pragma once
#include <cstdint>

namespace scatterlm::kernels {

__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b_0, uint32_t b_1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_0), "r"(b_1));
}

}  // namespace scatterlm::kernels

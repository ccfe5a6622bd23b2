// Asynchronous matrix products of a warpgroup (wgmma, PTX ISA 9.0, section 9.7.15): D [64, 256] fp32 in registers, A and B bf16
// in shared memory with the 128-byte swizzle.
//
// D: warp w = threadIdx.x / 32 % 4, lane l; d[4j], d[4j+1] are row 16 w + l/4, columns 8j + 2 (l%4) + {0, 1}; d[4j+2], d[4j+3]
// the same columns 8 rows below. So columns c and c + 128 are d[i] and d[i + 64] of one thread.
// Tests replace this file by tests/kernels/emulated.
#pragma once
#include <cstdint>

namespace scatterlm::kernels {

/// Which dimension of an operand is contiguous in shared memory: k (rows of 64 k) or m or n (boxes of 64 k x 64 mn).
enum class Major : int { kK = 0, kMN = 1 };

/// Before the first product that reads registers or shared memory written since the last.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Until all but the newest `kPending` groups are done.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// After the last wait: the compiler may not move reads of d before this.
__device__ __forceinline__ void wgmma_pin(float (&d)[128]) {
#pragma unroll
  for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#define SCATTERLM_D8(i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SCATTERLM_D32(i) SCATTERLM_D8(i), SCATTERLM_D8(i + 8), SCATTERLM_D8(i + 16), SCATTERLM_D8(i + 24)

/// d = a b (+ d if accumulate) over 16 k; a, b are matrix descriptors (shared_matrix.cuh).
template <Major kA, Major kB>
__device__ __forceinline__ void wgmma_m64n256k16(float (&d)[128], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
      "}, %128, %129, p, 1, 1, %131, %132;\n}"
      : SCATTERLM_D32(0), SCATTERLM_D32(32), SCATTERLM_D32(64), SCATTERLM_D32(96)
      : "l"(a), "l"(b), "r"(accumulate), "n"(static_cast<int>(kA)), "n"(static_cast<int>(kB)));
}

#undef SCATTERLM_D32
#undef SCATTERLM_D8

}  // namespace scatterlm::kernels

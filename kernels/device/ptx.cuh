// The instructions that CUDA C++ has no name for, one function each: mbarrier, bulk tensor copies (TMA), cp.async, named
// barriers, matrix stores and loads of shared memory. Addresses of shared memory are 32-bit (shared state space). Those of
// barriers, bulk copies, store_matrices and registers need sm_90a, the others sm_80.
// PTX ISA 9.0, sections 9.7.9 (data movement), 9.7.13 (barriers). Tests replace this file by tests/kernels/emulated.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace scatterlm::kernels {

#define SCATTERLM_PTX(text, ...) asm volatile(text ::__VA_ARGS__ : "memory")

/// The block's dynamic shared memory.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(1024) uint8_t shared[];
  return reinterpret_cast<T*>(shared);
}
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- mbarrier: a phase ends when `count` arrivals and all announced bytes are in; waiters name the phase by its parity.

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t count) {
  SCATTERLM_PTX("mbarrier.init.shared::cta.b64 [%0], %1;", "r"(barrier), "r"(count));
}
/// After the last barrier_init, before the block synchronises: makes the barriers known to the copy engine.
__device__ __forceinline__ void barrier_init_fence() { SCATTERLM_PTX("fence.mbarrier_init.release.cluster;"); }
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  SCATTERLM_PTX("mbarrier.arrive.shared::cta.b64 _, [%0];", "r"(barrier));
}
/// Arrives and announces bytes of bulk copies; a box that is clipped counts in full.
__device__ __forceinline__ void barrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  SCATTERLM_PTX("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;", "r"(barrier), "r"(bytes));
}
/// Arrives once this thread's earlier cp.async are done; the arrival is part of the barrier's count.
__device__ __forceinline__ void barrier_arrive_after_copies(uint32_t barrier) {
  SCATTERLM_PTX("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];", "r"(barrier));
}
/// Waits for the end of the phase with this parity. A new barrier is in phase 0, so parity 1 passes at once.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
  } while (!done);
}

/// Barrier `id` (1..15; 0 is __syncthreads) among `threads` threads.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  SCATTERLM_PTX("bar.sync %0, %1;", "r"(id), "r"(threads));
}

/// Orders this thread's ordinary accesses to shared memory before later ones of the copy engine and the tensor cores.
__device__ __forceinline__ void fence_proxy_async() { SCATTERLM_PTX("fence.proxy.async.shared::cta;"); }

// ---- Bulk tensor copies. Coordinates: innermost dimension first.

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap& map) {
  SCATTERLM_PTX("prefetch.tensormap [%0];", "l"(&map));
}

__device__ __forceinline__ void tma_load(uint32_t to, const CUtensorMap& map, uint32_t barrier, int x, int y) {
  SCATTERLM_PTX("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];",
                "r"(to), "l"(&map), "r"(barrier), "r"(x), "r"(y));
}
__device__ __forceinline__ void tma_load(uint32_t to, const CUtensorMap& map, uint32_t barrier, int x, int y, int z) {
  SCATTERLM_PTX(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];",
      "r"(to), "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z));
}
__device__ __forceinline__ void tma_load(uint32_t to, const CUtensorMap& map, uint32_t barrier, int x, int y, int z, int w) {
  SCATTERLM_PTX(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];",
      "r"(to), "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w));
}
__device__ __forceinline__ void tma_store(const CUtensorMap& map, uint32_t from, int x, int y, int z) {
  SCATTERLM_PTX("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];", "l"(&map), "r"(from),
                "r"(x), "r"(y), "r"(z));
}
__device__ __forceinline__ void tma_store(const CUtensorMap& map, uint32_t from, int x, int y, int z, int w) {
  SCATTERLM_PTX("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];", "l"(&map),
                "r"(from), "r"(x), "r"(y), "r"(z), "r"(w));
}
/// Adds in the type of the map, in L2.
__device__ __forceinline__ void tma_reduce_add(const CUtensorMap& map, uint32_t from, int x, int y, int z) {
  SCATTERLM_PTX("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4}], [%1];", "l"(&map),
                "r"(from), "r"(x), "r"(y), "r"(z));
}
/// Groups this thread's stores since the last commit; waiting is up to the same thread.
__device__ __forceinline__ void tma_store_commit() { SCATTERLM_PTX("cp.async.bulk.commit_group;"); }
/// Until all but the newest `kPending` groups have been read from shared memory.
template <int kPending>
__device__ __forceinline__ void tma_store_wait_read() {
  SCATTERLM_PTX("cp.async.bulk.wait_group.read %0;", "n"(kPending));
}
/// Until all but the newest `kPending` groups are written.
template <int kPending>
__device__ __forceinline__ void tma_store_wait() {
  SCATTERLM_PTX("cp.async.bulk.wait_group %0;", "n"(kPending));
}

// ---- Sixteen bytes of global memory that nobody writes or needs a second time; their line of 128 comes into L2 as a whole.

__device__ __forceinline__ uint4 load_once(const void* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}

// ---- Sixteen bytes from global to shared memory; bytes = 0 writes zeros and reads nothing.

__device__ __forceinline__ void copy_16_bytes_async(uint32_t to, const void* from, uint32_t bytes) {
  SCATTERLM_PTX("cp.async.cg.shared.global [%0], [%1], 16, %2;", "r"(to), "l"(from), "r"(bytes));
}
/// Groups this thread's copies since the last commit.
__device__ __forceinline__ void copies_commit() { SCATTERLM_PTX("cp.async.commit_group;"); }
/// Until all but the newest `kPending` groups are in shared memory.
template <int kPending>
__device__ __forceinline__ void copies_wait() {
  SCATTERLM_PTX("cp.async.wait_group %0;", "n"(kPending));
}

// ---- Four 8x8 matrices of 16-bit elements between the registers of a warp and shared memory; lane l gives the address of
// row l % 8 of matrix l / 8, and holds elements (l / 4, 2 (l % 4) + {0, 1}) of each.

__device__ __forceinline__ void store_matrices(uint32_t address, const uint32_t (&value)[4]) {
  SCATTERLM_PTX("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};", "r"(address), "r"(value[0]), "r"(value[1]),
                "r"(value[2]), "r"(value[3]));
}
__device__ __forceinline__ void load_matrices(uint32_t address, uint32_t (&value)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3])
               : "r"(address)
               : "memory");
}
/// The same with each matrix transposed: this lane holds elements (2 (l % 4) + {0, 1}, l / 4).
__device__ __forceinline__ void load_matrices_transposed(uint32_t address, uint32_t (&value)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t address, uint32_t x) {
  SCATTERLM_PTX("st.shared.b32 [%0], %1;", "r"(address), "r"(x));
}
__device__ __forceinline__ void store_shared(uint32_t address, float x, float y) {
  SCATTERLM_PTX("st.shared.v2.f32 [%0], {%1, %2};", "r"(address), "f"(x), "f"(y));
}
__device__ __forceinline__ void store_shared(uint32_t address, const uint4& x) {
  SCATTERLM_PTX("st.shared.v4.b32 [%0], {%1, %2, %3, %4};", "r"(address), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w));
}
__device__ __forceinline__ uint4 load_shared(uint32_t address) {
  uint4 x;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(address)
               : "memory");
  return x;
}
__device__ __forceinline__ void store_shared_zeros(uint32_t address) {
  SCATTERLM_PTX("st.shared.v4.b32 [%0], {%1, %1, %1, %1};", "r"(address), "r"(0));
}

// ---- Counters in global memory, between blocks

/// Adds, after everything that this thread, and those it has met at a barrier before, wrote.
__device__ __forceinline__ void add_release(int32_t* counter, int32_t x) {
  SCATTERLM_PTX("red.release.gpu.global.add.s32 [%0], %1;", "l"(counter), "r"(x));
}
/// Waits until the counter has at least this value; what was written before it was added to is visible afterwards.
__device__ __forceinline__ void wait_for_at_least(const int32_t* counter, int32_t value) {
  int32_t now;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
  } while (now < value);
}

// ---- Arithmetic

__device__ __forceinline__ float tanh_approximate(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// 2^x. Relative error 2^-22; results below 2^-126 are 0.
__device__ __forceinline__ float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// Relative error 2^-23; what is below 2^-126 counts as 0.
__device__ __forceinline__ float sqrt_approximate(float x) {
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// 1 / x. Relative error 2^-23; what is below 2^-126 counts as 0.
__device__ __forceinline__ float reciprocal_approximate(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// Two fp32 to bf16, round to nearest even; `low` in the low half.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

__device__ __forceinline__ uint32_t float_bits(float x) { return __float_as_uint(x); }
__device__ __forceinline__ float float_of_bits(uint32_t bits) { return __uint_as_float(bits); }
/// The halves of a packed pair as fp32.
__device__ __forceinline__ float low_bf16(uint32_t packed) { return __uint_as_float(packed << 16); }
__device__ __forceinline__ float high_bf16(uint32_t packed) { return __uint_as_float(packed & 0xFFFF0000); }

// ---- Registers of this warpgroup; all of its warps call.

template <int kRegisters>
__device__ __forceinline__ void registers_raise() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void registers_lower() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

#undef SCATTERLM_PTX

}  // namespace scatterlm::kernels

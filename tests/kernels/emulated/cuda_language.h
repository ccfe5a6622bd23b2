// The part of CUDA C++ that kernels/ uses, for a host compiler: built-in variables, warp functions, types. See machine.h.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "tests/kernels/emulated/cuda_runtime_api.h"
#include "tests/kernels/emulated/machine.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

struct alignas(64) CUtensorMap {
  const char* data;
  int rank, element_bytes;
  int64_t dim[4], stride[4];  ///< bytes, from the innermost dimension
  int32_t box[4];
};

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};

struct alignas(8) uint2 {
  uint32_t x, y;
};

struct alignas(8) float2 {
  float x, y;
};

struct alignas(16) float4 {
  float x, y, z, w;
};

inline emulated::Index& threadIdx = emulated::thread_index;
inline emulated::Index& blockIdx = emulated::block_index;
inline emulated::Index& blockDim = emulated::block_dim;
inline emulated::Index& gridDim = emulated::grid_dim;

inline void __syncthreads() { emulated::named_barrier_sync(0, static_cast<int>(blockDim.x)); }
inline void __threadfence() {}
inline void __syncwarp() { emulated::warp_exchange(0); }

template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  static_assert(sizeof(T) == 4);
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits = static_cast<uint32_t>(emulated::warp_exchange(bits)[lane & 31]);
  std::memcpy(&value, &bits, 4);
  return value;
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int step) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return __shfl_sync(mask, value, lane < step ? lane : lane - step);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return __shfl_sync(mask, value, static_cast<int>(threadIdx.x % 32) ^ bits);
}
inline unsigned __ballot_sync(unsigned, bool flag) {
  const auto* flags = emulated::warp_exchange(flag);
  unsigned set = 0;
  for (int lane = 0; lane < 32; ++lane) set |= (flags[lane] ? 1u : 0u) << lane;
  return set;
}
inline unsigned __match_any_sync(unsigned, int value) {
  const auto* values = emulated::warp_exchange(static_cast<uint32_t>(value));
  unsigned same = 0;
  for (int lane = 0; lane < 32; ++lane) same |= (values[lane] == static_cast<uint32_t>(value) ? 1u : 0u) << lane;
  return same;
}
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
  const auto* values = emulated::warp_exchange(value);
  return static_cast<unsigned>(*std::max_element(values, values + 32));
}
inline int __reduce_add_sync(unsigned, int value) {
  const auto* values = emulated::warp_exchange(static_cast<uint32_t>(value));
  int sum = 0;
  for (int lane = 0; lane < 32; ++lane) sum += static_cast<int>(values[lane]);
  return sum;
}
inline unsigned __reduce_min_sync(unsigned, unsigned value) {
  const auto* values = emulated::warp_exchange(value);
  return static_cast<unsigned>(*std::min_element(values, values + 32));
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }
inline int32_t atomicAdd(int32_t* address, int32_t value) { return std::exchange(*address, *address + value); }
inline void atomicMax(uint32_t* address, uint32_t value) { *address = std::max(*address, value); }

template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T value) {
  *p = value;
}
template <class A, class B>
std::common_type_t<A, B> min(A a, B b) {
  return a < b ? a : b;
}
template <class A, class B>
std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}

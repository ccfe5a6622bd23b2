// Eight neighbouring elements of a matrix as fp32: one access of 16 bytes for bf16, two for fp32.
#pragma once
#include "kernels/device/data_type.h"
#include "kernels/device/ptx.cuh"

namespace scatterlm::kernels {

constexpr int kVec8 = 8;

struct Bf16 {
  uint16_t bits;
};

/// Eight elements as they are in memory.
template <class T>
struct Vec8 {
  uint4 part[sizeof(T) / 2];
};

template <class T>
__device__ __forceinline__ Vec8<T> load_packed(const T* from) {
  Vec8<T> x;
#pragma unroll
  for (unsigned i = 0; i < sizeof(T) / 2; ++i) x.part[i] = reinterpret_cast<const uint4*>(from)[i];
  return x;
}
template <class T>
__device__ __forceinline__ void store_packed(T* to, const Vec8<T>& x) {
#pragma unroll
  for (unsigned i = 0; i < sizeof(T) / 2; ++i) reinterpret_cast<uint4*>(to)[i] = x.part[i];
}

__device__ __forceinline__ void unpack(const Vec8<Bf16>& packed, float (&x)[kVec8]) {
  const uint32_t pairs[4] = {packed.part[0].x, packed.part[0].y, packed.part[0].z, packed.part[0].w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = low_bf16(pairs[i]);
    x[2 * i + 1] = high_bf16(pairs[i]);
  }
}
__device__ __forceinline__ void unpack(const Vec8<float>& packed, float (&x)[kVec8]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    x[4 * i] = float_of_bits(packed.part[i].x);
    x[4 * i + 1] = float_of_bits(packed.part[i].y);
    x[4 * i + 2] = float_of_bits(packed.part[i].z);
    x[4 * i + 3] = float_of_bits(packed.part[i].w);
  }
}

__device__ __forceinline__ void pack(const float (&x)[kVec8], Vec8<Bf16>& packed) {
  packed.part[0] = uint4{pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]), pack_bf16(x[6], x[7])};
}
__device__ __forceinline__ void pack(const float (&x)[kVec8], Vec8<float>& packed) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
    packed.part[i] = uint4{float_bits(x[4 * i]), float_bits(x[4 * i + 1]), float_bits(x[4 * i + 2]), float_bits(x[4 * i + 3])};
}

template <class T>
__device__ __forceinline__ void load_vec8(const T* from, float (&x)[kVec8]) {
  unpack(load_packed(from), x);
}
template <class T>
__device__ __forceinline__ void store_vec8(T* to, const float (&x)[kVec8]) {
  Vec8<T> packed;
  pack(x, packed);
  store_packed(to, packed);
}
/// To the nearest values of the type.
template <class T>
__device__ __forceinline__ void round_vec8(float (&x)[kVec8]) {
  Vec8<T> packed;
  pack(x, packed);
  unpack(packed, x);
}

__device__ __forceinline__ void store(Bf16* to, float x) { to->bits = static_cast<uint16_t>(pack_bf16(x, 0)); }
__device__ __forceinline__ void store(float* to, float x) { *to = x; }

__device__ __forceinline__ float as_float(Bf16 x) { return low_bf16(x.bits); }
__device__ __forceinline__ float as_float(float x) { return x; }

/// The same where the array ends after `left` elements, which may be fewer than eight; those beyond are read as zero.
template <class T>
__device__ __forceinline__ void load_vec8(const T* from, int64_t left, float (&x)[kVec8]) {
  if (left >= kVec8) return load_vec8(from, x);
#pragma unroll
  for (int i = 0; i < kVec8; ++i) x[i] = i < left ? as_float(from[i]) : 0.0f;
}
template <class T>
__device__ __forceinline__ Vec8<T> load_packed(const T* from, int64_t left) {
  float x[kVec8];
  load_vec8(from, left, x);
  Vec8<T> packed;
  pack(x, packed);
  return packed;
}
template <class T>
__device__ __forceinline__ void store_vec8(T* to, int64_t left, const float (&x)[kVec8]) {
  if (left >= kVec8) return store_vec8(to, x);
#pragma unroll
  for (int i = 0; i < kVec8; ++i)
    if (i < left) store(to + i, x[i]);
}

/// visit(an element of the type).
template <class Visit>
void with_type(DataType type, Visit&& visit) {
  if (type == DataType::kBfloat16) return visit(Bf16{});
  visit(float{});
}

}  // namespace scatterlm::kernels

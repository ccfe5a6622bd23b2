// In place of kernels/device/ptx.cuh: the same functions on the machine of machine.h.
#pragma once
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "tests/kernels/emulated/cuda_language.h"

namespace scatterlm::kernels {

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(emulated::shared_begin());
}
inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const char*>(pointer) - static_cast<const char*>(emulated::shared_begin())) +
         emulated::kSharedBase;
}

using emulated::barrier_init;
using emulated::barrier_wait;
using emulated::named_barrier_sync;
inline void barrier_init_fence() {}
inline void barrier_arrive(uint32_t barrier) { emulated::barrier_arrive(barrier); }
inline void barrier_arrive_expect(uint32_t barrier, uint32_t bytes) { emulated::barrier_arrive(barrier, bytes); }
inline void barrier_arrive_after_copies(uint32_t barrier) { emulated::arrive_after_copies(barrier); }
inline void fence_proxy_async() {}
inline void prefetch_tensor_map(const CUtensorMap&) {}

inline uint32_t float_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
inline float float_of_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline float low_bf16(uint32_t packed) { return float_of_bits(packed << 16); }
inline float high_bf16(uint32_t packed) { return low_bf16(packed >> 16); }
inline uint32_t pack_bf16(float low, float high) {
  const auto rounded = [](float x) -> uint32_t {
    const uint32_t bits = float_bits(x);
    if (std::isnan(x)) return 0x7FFF;
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  };
  return rounded(low) | rounded(high) << 16;
}

namespace emulated_tma {

/// visit(shared address, global address or nullptr where outside) for every element of the box; its bytes.
template <size_t kRank, class Visit>
int64_t for_box(const CUtensorMap& map, uint32_t box, const std::array<int, kRank>& begin, Visit&& visit) {
  if (map.rank != static_cast<int>(kRank)) throw std::runtime_error("coordinates do not fit the tensor map");
  if (box % 1024 != 0) throw std::runtime_error("a swizzled box must start at a multiple of 1024 bytes");
  int64_t elements = 1;
  for (size_t i = 0; i < kRank; ++i) elements *= map.box[i];
  for (int64_t linear = 0; linear < elements; ++linear) {
    int64_t rest = linear, offset = 0;
    bool inside = true;
    for (size_t i = 0; i < kRank; ++i) {
      const int64_t at = begin[i] + rest % map.box[i];
      rest /= map.box[i];
      inside &= at >= 0 && at < map.dim[i];
      offset += at * map.stride[i];
    }
    uint32_t address = box + static_cast<uint32_t>(linear * map.element_bytes);
    address ^= (address >> 7 & 7) << 4;
    visit(address, inside ? const_cast<char*>(map.data) + offset : nullptr);
  }
  return elements * map.element_bytes;
}

/// Stores (and additions, in the type of the map).
template <class... Int>
void store(const CUtensorMap& map, uint32_t from, bool add, Int... at) {
  emulated::enqueue(emulated::Queue::kStores, [map, from, add, begin = std::array{at...}] {
    for_box(map, from, begin, [&](uint32_t address, char* to) {
      if (!to) return;
      const char* value = emulated::shared(address);
      if (!add) {
        std::memcpy(to, value, map.element_bytes);
      } else if (map.element_bytes == 4) {
        float sum[2];
        std::memcpy(&sum[0], value, 4);
        std::memcpy(&sum[1], to, 4);
        sum[0] += sum[1];
        std::memcpy(to, &sum[0], 4);
      } else {
        uint16_t half[2];
        std::memcpy(&half[0], value, 2);
        std::memcpy(&half[1], to, 2);
        const uint32_t sum = pack_bf16(low_bf16(half[0]) + low_bf16(half[1]), 0);
        std::memcpy(to, &sum, 2);
      }
    });
  });
}

}  // namespace emulated_tma

template <class... Int>
void tma_load(uint32_t to, const CUtensorMap& map, uint32_t barrier, Int... at) {
  emulated::later([to, map, barrier, begin = std::array{at...}] {
    const int64_t bytes = emulated_tma::for_box(map, to, begin, [&](uint32_t address, const char* from) {
      if (from)
        std::memcpy(emulated::shared(address), from, map.element_bytes);
      else
        std::memset(emulated::shared(address), 0, map.element_bytes);
    });
    emulated::barrier_complete_bytes(barrier, bytes);
  });
}
template <class... Int>
void tma_store(const CUtensorMap& map, uint32_t from, Int... at) {
  emulated_tma::store(map, from, false, at...);
}
template <class... Int>
void tma_reduce_add(const CUtensorMap& map, uint32_t from, Int... at) {
  emulated_tma::store(map, from, true, at...);
}
inline void tma_store_commit() { emulated::commit(emulated::Queue::kStores); }
template <int kPending>
void tma_store_wait_read() {
  emulated::wait(emulated::Queue::kStores, kPending);
}
template <int kPending>
void tma_store_wait() {
  emulated::wait(emulated::Queue::kStores, kPending);
}

inline uint4 load_once(const void* from) {
  uint4 value;
  std::memcpy(&value, from, 16);
  return value;
}

inline void copy_16_bytes_async(uint32_t to, const void* from, uint32_t bytes) {
  emulated::copy_later([to, from, bytes] {
    std::memset(emulated::shared(to), 0, 16);
    std::memcpy(emulated::shared(to), from, bytes);
  });
}

inline void copies_commit() { emulated::commit_copies(); }
template <int kPending>
void copies_wait() {
  emulated::wait(emulated::Queue::kCopies, kPending);
}

/// Element pair of this lane in matrix i: the row's address comes from lane 8 i + lane / 4.
inline char* matrix_pair(const uint64_t* addresses, int i) {
  const unsigned lane = threadIdx.x % 32;
  return emulated::shared(static_cast<uint32_t>(addresses[8 * i + lane / 4])) + lane % 4 * 4;
}
inline void store_matrices(uint32_t address, const uint32_t (&value)[4]) {
  const auto* addresses = emulated::warp_exchange(address);
  for (int i = 0; i < 4; ++i) std::memcpy(matrix_pair(addresses, i), &value[i], 4);
}
inline void load_matrices(uint32_t address, uint32_t (&value)[4]) {
  const auto* addresses = emulated::warp_exchange(address);
  for (int i = 0; i < 4; ++i) std::memcpy(&value[i], matrix_pair(addresses, i), 4);
}
/// Row r of matrix i comes from lane 8 i + r; this lane takes column lane / 4 of two rows.
inline void load_matrices_transposed(uint32_t address, uint32_t (&value)[4]) {
  const auto* addresses = emulated::warp_exchange(address);
  const unsigned lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    uint16_t half[2];
    for (int j = 0; j < 2; ++j)
      std::memcpy(&half[j], emulated::shared(static_cast<uint32_t>(addresses[8 * i + lane % 4 * 2 + j])) + lane / 4 * 2, 2);
    value[i] = half[0] | uint32_t{half[1]} << 16;
  }
}
inline void store_shared(uint32_t address, uint32_t x) { std::memcpy(emulated::shared(address), &x, 4); }
inline void store_shared(uint32_t address, float x, float y) {
  std::memcpy(emulated::shared(address), &x, 4);
  std::memcpy(emulated::shared(address + 4), &y, 4);
}
inline void store_shared(uint32_t address, const uint4& x) { std::memcpy(emulated::shared(address), &x, 16); }
inline uint4 load_shared(uint32_t address) {
  uint4 value;
  std::memcpy(&value, emulated::shared(address), 16);
  return value;
}
inline void add_release(int32_t* counter, int32_t x) { *counter += x; }
using emulated::wait_for_at_least;
inline void store_shared_zeros(uint32_t address) { std::memset(emulated::shared(address), 0, 16); }

inline float tanh_approximate(float x) { return std::tanh(x); }
inline float exp2_approximate(float x) { return std::exp2(x); }
inline float sqrt_approximate(float x) { return std::sqrt(x); }
inline float reciprocal_approximate(float x) { return 1 / x; }

template <int kRegisters>
void registers_raise() {}
template <int kRegisters>
void registers_lower() {}

}  // namespace scatterlm::kernels

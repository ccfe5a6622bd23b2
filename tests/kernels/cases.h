// What the tests of kernels share: buffers of the device with guards, bf16 numbers, experts with given counts.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/grouped_gemm.h"
#include "kernels/grouped_gemm/wgrad_split.h"

namespace scatterlm::kernels::test {

using Bf16 = uint16_t;

inline float to_float(Bf16 x) {
  const uint32_t bits = uint32_t{x} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline float to_float(float x) { return x; }
inline Bf16 to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return static_cast<Bf16>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

/// Elements on the device between two guards of NaN bytes; host() fails if a guard was written.
template <class T>
class Buffer {
 public:
  explicit Buffer(const std::vector<T>& values) : size_(values.size()) {
    check(cudaMalloc(reinterpret_cast<void**>(&memory_), bytes() + 2 * kGuard));
    check(cudaMemset(memory_, 0xFF, bytes() + 2 * kGuard));
    if (size_) check(cudaMemcpy(data(), values.data(), bytes(), cudaMemcpyDefault));
  }
  /// Filled with NaN (all bits one).
  explicit Buffer(size_t size) : Buffer(std::vector<T>()) {
    check(cudaFree(memory_));
    size_ = size;
    check(cudaMalloc(reinterpret_cast<void**>(&memory_), bytes() + 2 * kGuard));
    check(cudaMemset(memory_, 0xFF, bytes() + 2 * kGuard));
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { cudaFree(memory_); }

  T* data() const { return reinterpret_cast<T*>(memory_ + kGuard); }

  std::vector<T> host() const {
    check(cudaDeviceSynchronize());
    std::vector<char> all(bytes() + 2 * kGuard);
    check(cudaMemcpy(all.data(), memory_, all.size(), cudaMemcpyDefault));
    for (size_t i = 0; i < kGuard; ++i)
      if (all[i] != '\xFF' || all[kGuard + bytes() + i] != '\xFF') throw std::runtime_error("written outside of a buffer");
    std::vector<T> values(size_);
    if (size_) std::memcpy(values.data(), all.data() + kGuard, bytes());
    return values;
  }

 private:
  static constexpr size_t kGuard = 64 * 1024;  ///< more than 64 rows of what the tests have
  size_t bytes() const { return size_ * sizeof(T); }

  char* memory_ = nullptr;
  size_t size_ = 0;
};

/// Normal numbers as bf16.
inline std::vector<Bf16> randn(size_t count, unsigned seed, float std = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, std);
  std::vector<Bf16> values(count);
  for (auto& value : values) value = to_bf16(normal(generator));
  return values;
}

// For kernels that take bf16 and fp32, with T the type of the elements:
template <class T>
constexpr DataType kType = sizeof(T) == 2 ? DataType::kBfloat16 : DataType::kFloat32;

/// Normal numbers, those in fp32 not exact in bf16.
template <class T>
std::vector<T> numbers(int64_t count, unsigned seed) {
  std::vector<T> values;
  for (const Bf16 x : randn(size_t(count), seed)) {
    if constexpr (sizeof(T) == 2)
      values.push_back(x);
    else
      values.push_back(to_float(x) * 1.001f);
  }
  return values;
}

/// To the nearest value of the type, as double.
template <class T>
double rounded(double x) {
  if constexpr (sizeof(T) == 2) return to_float(to_bf16(static_cast<float>(x)));
  return static_cast<float>(x);
}

inline std::vector<float> uniform(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (auto& value : values) value = std::uniform_real_distribution<float>(0.1f, 1)(generator);
  return values;
}
inline std::vector<int32_t> random_rows(size_t count, int limit, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<int32_t> values(count);
  for (auto& value : values) value = static_cast<int32_t>(generator() % limit);
  return values;
}
inline std::vector<int32_t> random_permutation(size_t count, unsigned seed) {
  std::vector<int32_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<int32_t>(i);
  std::shuffle(values.begin(), values.end(), std::mt19937(seed));
  return values;
}

/// ||a - b|| / ||b||; NaN if a has one.
template <class T>
double relative_error(const std::vector<T>& actual, const std::vector<double>& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = to_float(actual[i]) - expected[i];
    difference += d * d;
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference / norm);
}
/// Error of bf16 values against exact ones, in units of the error of rounding the exact ones to bf16 (at least 1e-3 of their
/// norm: single values can be lucky).
inline double rounding_errors(const std::vector<Bf16>& actual, const std::vector<double>& exact) {
  std::vector<Bf16> rounded(exact.size());
  for (size_t i = 0; i < exact.size(); ++i) rounded[i] = to_bf16(static_cast<float>(exact[i]));
  return relative_error(actual, exact) / std::max(relative_error(rounded, exact), 1e-3);
}

/// A compute capability of each family of grouped GEMMs.
inline const std::vector<int> kFamilies = {80, kHopper};

/// Rows in expert order with these counts.
struct Experts {
  explicit Experts(const std::vector<int>& counts) : counts(counts) {
    for (const int count : counts) {
      offsets.push_back(offsets.back() + count);
      tiles.push_back(tiles.back() + (count + kTileRows - 1) / kTileRows);
    }
    tiles.insert(tiles.end(), {0, 0});
  }
  int num_experts() const { return static_cast<int>(counts.size()); }
  int num_rows() const { return offsets.back(); }
  int num_tiles() const { return tiles[counts.size()]; }

  std::vector<int> counts;
  std::vector<int32_t> offsets{0}, tiles{0};  ///< as in ExpertRows
};

/// Empty experts first, last and between, tile edges, one row.
inline std::vector<Experts> expert_tables() {
  return {Experts({0, 300, 0, 1, 128, 64, 0, 129, 2, 77, 127, 0}), Experts({517}), Experts({0, 0, 1})};
}

/// The same on the device.
struct DeviceExperts {
  explicit DeviceExperts(const Experts& experts)
      : offsets(experts.offsets),
        tiles(experts.tiles),
        rows{offsets.data(), tiles.data(), experts.num_experts(), experts.num_rows()} {}
  /// Kernels leave the counters at zero for the next one.
  bool is_as_before(const Experts& experts) const { return offsets.host() == experts.offsets && tiles.host() == experts.tiles; }

  Buffer<int32_t> offsets, tiles;
  ExpertRows rows;
};

/// A host thread in place of the warp that a WgradPlanner runs on.
struct OneLane {
  static constexpr int kLanes = 1;
  static int lane() { return 0; }
  static int min(int x) { return x; }
  static int max(int x) { return x; }
  static LaneSums scan(int x) { return {0, x}; }
  static void sync() {}
};

}  // namespace scatterlm::kernels::test

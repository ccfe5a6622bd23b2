#include "lib/data/sample_order.h"

#include <bit>
#include <cmath>

namespace scatterlm {
namespace {

/// splitmix64's finaliser (Steele, Lea and Flood 2014): every input bit reaches every output bit.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Permutation::Permutation(int64_t size, uint64_t key)
    : size_(static_cast<uint64_t>(size)), key_(key), half_bits_((std::bit_width(size_ - 1) + 1) / 2) {}

int64_t Permutation::operator()(int64_t index) const {
  constexpr uint64_t kRounds = 6;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (mix(key_ ^ mix(round << 32 ^ right)) & mask);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

Blend::Blend(const std::vector<double>& weights) : cumulative_{0} {
  for (double weight : weights) cumulative_.push_back(cumulative_.back() + weight);
}

Blend::Turn Blend::operator()(int64_t sample) const {
  size_t low = 0;
  size_t high = cumulative_.size() - 1;
  auto index = static_cast<uint64_t>(sample);
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    const double share = (cumulative_[middle] - cumulative_[low]) / (cumulative_[high] - cumulative_[low]);
    // Fixed point with 63 bits: exact for any sample number, and a share of 1 fits.
    const auto fixed_share = static_cast<uint64_t>(std::ldexp(share, 63));
    const auto left_count = [&](uint64_t samples) {
      using Wide = unsigned __int128;
      return static_cast<uint64_t>((Wide{samples} * fixed_share + (Wide{1} << 62)) >> 63);
    };
    const uint64_t left_before = left_count(index);
    if (left_count(index + 1) > left_before) {
      high = middle;
      index = left_before;
    } else {
      low = middle;
      index -= left_before;
    }
  }
  return {static_cast<int64_t>(low), static_cast<int64_t>(index)};
}

double Blend::share(int64_t source) const {
  const auto i = static_cast<size_t>(source);
  return (cumulative_[i + 1] - cumulative_[i]) / cumulative_.back();
}

uint64_t epoch_key(int64_t seed, int64_t source, int64_t epoch) {
  return mix(mix(mix(static_cast<uint64_t>(seed)) ^ static_cast<uint64_t>(source)) ^ static_cast<uint64_t>(epoch));
}

}  // namespace scatterlm

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) and normal numbers made from
// it.
//
// A normal number here is a sum of sixteen 16-bit uniforms (Irwin-Hall), centred: integers up to the last operation,
// which is one fp32 multiplication. So every compiler and device gives the same bits, which no logarithm or cosine
// (Box-Muller) promises. Against the normal distribution: mean and variance are exact, the tails end at 6.93 sigma, the
// excess kurtosis is -0.075.
#pragma once
#include <cstdint>

#include "kernels/device/host_device.h"

namespace scatterlm::kernels {

struct Philox4x32 {
  uint32_t word[4];
};

/// One block: a bijection of the counter, chosen by the key.
SCATTERLM_HOST_DEVICE inline Philox4x32 philox4x32_10(Philox4x32 counter, uint64_t key) {
  auto key_lo = static_cast<uint32_t>(key), key_hi = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product_0 = uint64_t{0xD2511F53} * counter.word[0];
    const uint64_t product_2 = uint64_t{0xCD9E8D57} * counter.word[2];
    counter = {{static_cast<uint32_t>(product_2 >> 32) ^ counter.word[1] ^ key_lo, static_cast<uint32_t>(product_2),
                static_cast<uint32_t>(product_0 >> 32) ^ counter.word[3] ^ key_hi, static_cast<uint32_t>(product_0)}};
    key_lo += 0x9E3779B9;
    key_hi += 0xBB67AE85;
  }
  return counter;
}

/// 1 / standard deviation of centred_sum: sqrt(12 / (16 * (2^32 - 1))).
constexpr float kInverseSigma = 1.3214499e-05F;

/// Element `index` of the stream: sixteen uniforms of 0..65535 less their mean, in [-524280, 524280], exact as fp32.
SCATTERLM_HOST_DEVICE inline int32_t centred_sum(uint64_t stream, uint64_t index) {
  int32_t sum = -16 * 65535 / 2;
  for (uint32_t block = 0; block < 2; ++block) {
    const Philox4x32 bits =
        philox4x32_10({{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), block, 0}}, stream);
    for (const uint32_t word : bits.word) sum += static_cast<int32_t>((word & 0xFFFF) + (word >> 16));
  }
  return sum;
}

/// Element `index` of the normal stream; scale = standard deviation * kInverseSigma.
SCATTERLM_HOST_DEVICE inline float normal(uint64_t stream, uint64_t index, float scale) {
  return static_cast<float>(centred_sum(stream, index)) * scale;
}

}  // namespace scatterlm::kernels

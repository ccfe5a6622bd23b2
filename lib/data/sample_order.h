// The global order of samples: pure functions of a sample's number, so any position is reached at once and no table is kept.
#pragma once
#include <cstdint>
#include <vector>

namespace scatterlm {

/// Pseudo-random permutation of 0 .. size-1, chosen by `key`.
///
/// A Feistel network permutes the numbers of the next even number of bits; values that fall outside are permuted again until
/// they land inside (cycle walking, under four rounds on average), which leaves a permutation of the range.
class Permutation {
 public:
  Permutation(int64_t size, uint64_t key);
  int64_t operator()(int64_t index) const;

 private:
  uint64_t size_;
  uint64_t key_;
  int half_bits_;
};

/// Deals sample numbers to weighted sources.
class Blend {
 public:
  struct Turn {
    int64_t source;
    int64_t index;  ///< samples that the source had before
  };

  /// Weights are relative, not negative, one of them positive.
  explicit Blend(const std::vector<double>& weights);

  /// A binary tree halves the sources. At each node the left half's count after n samples is n * share, rounded: error
  /// diffusion in closed form. So after any number of samples each source has its share up to one sample per level of the tree.
  Turn operator()(int64_t sample) const;

  double share(int64_t source) const;

 private:
  std::vector<double> cumulative_;  ///< [sources + 1], from 0
};

/// Number for choosing the permutation of one source in one epoch.
uint64_t epoch_key(int64_t seed, int64_t source, int64_t epoch);

}  // namespace scatterlm

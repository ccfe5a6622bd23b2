// The merges of byte-level BPE and how a piece becomes tokens by them.
#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace scatterlm {

/// Pairs of neighbouring tokens that become one, each with its rank; the lowest rank merges first. A hash table with open
/// addressing.
class MergeTable {
 public:
  static constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();
  struct Merge {
    uint32_t rank = kNever, token = 0;
  };

  explicit MergeTable(size_t most_pairs);
  /// False if the pair is there already.
  bool add(uint32_t left, uint32_t right, Merge merge);

  Merge find(uint32_t left, uint32_t right) const {
    const uint64_t key = pair_key(left, right);
    for (size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == kEmpty) return {};
    }
  }

 private:
  static constexpr uint64_t kEmpty = std::numeric_limits<uint64_t>::max();
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };

  static uint64_t pair_key(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }
  size_t slot_of(uint64_t key) const { return (key * 0x9e3779b97f4a7c15) >> shift_; }

  size_t mask_;
  int shift_;
  std::vector<Slot> slots_;
};

/// Merges the tokens of one piece in place until no pair of neighbours has a rank: the lowest rank first, the leftmost of equal
/// ones. Keeps its memory from call to call; one per thread. The table must outlive it.
class Merger {
 public:
  explicit Merger(const MergeTable& table) : table_(table) {}
  void merge(std::vector<uint32_t>& tokens);

 private:
  void merge_short(std::vector<uint32_t>& tokens);
  void merge_long(std::vector<uint32_t>& tokens);

  struct Candidate {
    uint32_t rank;
    int32_t left;            ///< position
    uint32_t first, second;  ///< tokens; others stand there if it is out of date
    uint32_t token;
    bool operator<(const Candidate& other) const {  // of a heap whose top is the largest
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  void push_candidate(const std::vector<uint32_t>& tokens, int32_t left, int32_t right);

  const MergeTable& table_;
  std::vector<MergeTable::Merge> merges_;  ///< of each token with the next
  std::vector<Candidate> heap_;
  std::vector<int32_t> next_, previous_;
};

}  // namespace scatterlm

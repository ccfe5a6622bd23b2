#include "lib/tokenizer/merges.h"

#include <algorithm>
#include <bit>

namespace scatterlm {
namespace {

constexpr size_t kShortPiece = 96;  // tokens; above it a heap is faster than scanning all pairs for each merge

}  // namespace

MergeTable::MergeTable(size_t most_pairs) {
  const size_t size = std::bit_ceil(std::max<size_t>(most_pairs * 2, 16));
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
  slots_.resize(size);
}

bool MergeTable::add(uint32_t left, uint32_t right, Merge merge) {
  const uint64_t key = pair_key(left, right);
  size_t i = slot_of(key);
  for (; slots_[i].key != kEmpty; i = (i + 1) & mask_)
    if (slots_[i].key == key) return false;
  slots_[i] = {key, merge};
  return true;
}

void Merger::merge(std::vector<uint32_t>& tokens) { tokens.size() <= kShortPiece ? merge_short(tokens) : merge_long(tokens); }

void Merger::merge_short(std::vector<uint32_t>& tokens) {
  merges_.clear();
  for (size_t i = 0; i + 1 < tokens.size(); ++i) merges_.push_back(table_.find(tokens[i], tokens[i + 1]));
  while (!merges_.empty()) {
    const auto best = std::min_element(merges_.begin(), merges_.end(), [](auto& a, auto& b) { return a.rank < b.rank; });
    if (best->rank == MergeTable::kNever) return;
    const auto i = static_cast<size_t>(best - merges_.begin());
    tokens[i] = best->token;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    merges_.erase(best);
    if (i < merges_.size()) merges_[i] = table_.find(tokens[i], tokens[i + 1]);
    if (i > 0) merges_[i - 1] = table_.find(tokens[i - 1], tokens[i]);
  }
}

void Merger::push_candidate(const std::vector<uint32_t>& tokens, int32_t left, int32_t right) {
  const uint32_t first = tokens[static_cast<size_t>(left)], second = tokens[static_cast<size_t>(right)];
  const auto merge = table_.find(first, second);
  if (merge.rank == MergeTable::kNever) return;
  heap_.push_back({merge.rank, left, first, second, merge.token});
  std::push_heap(heap_.begin(), heap_.end());
}

void Merger::merge_long(std::vector<uint32_t>& tokens) {
  constexpr uint32_t kGone = MergeTable::kNever;
  const auto count = static_cast<int32_t>(tokens.size());
  heap_.clear();
  next_.resize(tokens.size());
  previous_.resize(tokens.size());
  for (int32_t i = 0; i < count; ++i) {
    next_[static_cast<size_t>(i)] = i + 1;
    previous_[static_cast<size_t>(i)] = i - 1;
  }
  for (int32_t i = 0; i + 1 < count; ++i) push_candidate(tokens, i, i + 1);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Candidate best = heap_.back();
    heap_.pop_back();
    const auto left = static_cast<size_t>(best.left);
    if (tokens[left] != best.first || next_[left] == count) continue;
    const auto right = static_cast<size_t>(next_[left]);
    if (tokens[right] != best.second) continue;
    tokens[left] = best.token;
    tokens[right] = kGone;
    next_[left] = next_[right];
    if (next_[left] < count) previous_[static_cast<size_t>(next_[left])] = best.left;
    if (previous_[left] >= 0) push_candidate(tokens, previous_[left], best.left);
    if (next_[left] < count) push_candidate(tokens, best.left, next_[left]);
  }
  std::erase(tokens, kGone);
}

}  // namespace scatterlm

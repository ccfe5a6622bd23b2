#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lib/tokenizer/bpe_tokenizer.h"

namespace scatterlm {

/// Tokens of short pieces that were met before: one cache line each; a new piece takes the place of another with the same slot.
class PieceCache {
 public:
  PieceCache() : entries_(kSlots) {}
  static bool fits(std::string_view piece) { return piece.size() <= kMostBytes; }

  /// Appends the tokens of `piece`, which fits; where it is not there, those that make(tokens) appends.
  template <class Make>
  void append(std::string_view piece, std::vector<uint32_t>& tokens, Make&& make) {
    Entry& entry = entries_[slot_of(piece)];
    if (entry.bytes == piece.size() && std::string_view(entry.piece, entry.bytes) == piece) {
      tokens.insert(tokens.end(), entry.tokens, entry.tokens + entry.count);
      return;
    }
    const size_t before = tokens.size();
    make(tokens);
    const size_t count = tokens.size() - before;
    if (count > kMostTokens) return;
    entry.bytes = static_cast<uint8_t>(piece.size());
    entry.count = static_cast<uint8_t>(count);
    std::copy(piece.begin(), piece.end(), entry.piece);
    std::copy(tokens.begin() + static_cast<std::ptrdiff_t>(before), tokens.end(), entry.tokens);
  }

 private:
  static constexpr size_t kSlotBits = 16, kSlots = size_t{1} << kSlotBits, kMostBytes = 30, kMostTokens = 8;
  struct alignas(64) Entry {
    uint8_t bytes = 0, count = 0;
    char piece[kMostBytes];
    uint32_t tokens[kMostTokens];
  };
  static size_t slot_of(std::string_view piece);

  std::vector<Entry> entries_;
};

class BpeEncoder : public TextEncoder {
 public:
  BpeEncoder(const BpeModel& model, const std::unordered_map<std::string_view, uint32_t>& whole_pieces, SpecialTokens special);
  bool encode(const TextPart& part, std::vector<uint32_t>& tokens) override;

 private:
  using End = SplitPattern::Matcher::End;
  bool encode_bytes(std::string_view text, size_t stop, End end);
  bool encode_valid(std::string_view text, size_t stop, End end);
  bool encode_normalized(std::string_view text, size_t stop, End end);
  void encode_piece(std::string_view piece);
  void merge_piece(std::string_view piece, std::vector<uint32_t>& tokens);

  const BpeModel& model_;
  const std::unordered_map<std::string_view, uint32_t>& whole_pieces_;
  AddedTokenSet added_, added_normalized_;
  PieceFinder pieces_;
  Merger merger_;
  PieceCache cache_;
  std::vector<uint32_t>* tokens_ = nullptr;  ///< of the call
  bool at_start_ = false;                    ///< of what add_prefix_space counts as a text
  std::string normalized_, prefixed_;
  std::vector<uint32_t> merging_;
};

}  // namespace scatterlm

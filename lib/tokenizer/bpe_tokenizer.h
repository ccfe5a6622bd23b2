// Byte-level BPE, as GPT-2 introduced it: text is split into pieces by a regular expression, and in each piece neighbouring
// tokens are merged, from single bytes up.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lib/tokenizer/added_tokens.h"
#include "lib/tokenizer/merges.h"
#include "lib/tokenizer/pre_tokenizer.h"
#include "lib/tokenizer/tokenizer.h"

namespace scatterlm {

/// What a tokenizer's files say; the readers make it (tokenizer_files.h).
struct BpeModel {
  std::vector<std::string> token_bytes;     ///< by token; empty where a number is none
  std::array<uint32_t, 256> byte_tokens{};  ///< tokens of single bytes
  MergeTable merges{0};
  bool whole_pieces_first = false;  ///< a piece that is a token stays whole, whatever the merges would make of it
  PreTokenizer pre_tokenizer;
  bool nfc = false;  ///< the text is normalized first
  std::vector<AddedToken> added;
  std::optional<uint32_t> eot;
};

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeModel model);
  std::unique_ptr<TextEncoder> encoder(SpecialTokens special = SpecialTokens::kAsText) const override;
  size_t find_cut(std::string_view text, size_t limit) const override;
  std::string bytes_of(uint32_t token) const override;
  bool is_special(uint32_t token) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(model_.token_bytes.size()); }
  std::optional<uint32_t> eot() const override { return model_.eot; }
  std::optional<uint32_t> find_token(std::string_view bytes) const override;

 private:
  /// Where a text may be cut: between a line break and a letter or digit, in front of a space between letters, between a space
  /// and a digit. Those that the pre-tokenizer splits at.
  enum CutKind { kLineBegin, kWordBegin, kNumberBegin, kNumCutKinds };
  bool splits_at(std::string_view text, size_t place) const;
  bool is_cut(std::string_view text, size_t place) const;

  BpeModel model_;
  std::unordered_map<std::string_view, uint32_t> tokens_;  ///< by their bytes; views into model_.token_bytes
  std::array<bool, kNumCutKinds> cuts_{};
  std::vector<bool> is_special_;
};

}  // namespace scatterlm

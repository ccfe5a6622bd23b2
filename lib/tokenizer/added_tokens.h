// Tokens that are cut out of a text before it is split, such as special ones.
#pragma once
#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/tokenizer/pre_tokenizer.h"
#include "lib/tokenizer/tokenizer.h"

namespace scatterlm {

/// As in tokenizer.json.
struct AddedToken {
  uint32_t id = 0;
  std::string content;
  bool special = false;                          ///< found in a text only where that is asked for
  bool normalized = false;                       ///< looked for after the text is normalized
  bool strip_left = false, strip_right = false;  ///< takes the white space there with it
};

/// Finds them, leftmost and longest. Immutable.
class AddedTokenSet {
 public:
  AddedTokenSet() = default;
  /// A special token that is not to be recognised still hides others inside of it, as in Hugging Face's tokenizers.
  AddedTokenSet(std::vector<AddedToken> tokens, SpecialTokens special);

  struct Match {
    size_t begin, end;
    uint32_t id;
  };
  /// The first one that begins at `from` or later; white space that it takes is not before `from`.
  std::optional<Match> find(std::string_view text, size_t from) const;

  bool empty() const { return tokens_.empty(); }
  size_t longest() const { return longest_; }

  using End = SplitPattern::Matcher::End;
  /// Calls on_token(id) and on_text(text, stop, end), which returns a bool, in turn for what text[0, stop) consists of; the
  /// same contract as PieceFinder::find.
  template <class OnText, class OnToken>
  bool split(std::string_view text, size_t stop, End end, OnText&& on_text, OnToken&& on_token) const {
    size_t at = 0;
    while (at < stop) {
      const auto match = find(text, at);
      if (!match) return on_text(text.substr(at), stop - at, end);
      const std::string_view before = text.substr(at, match->begin - at);
      if (match->begin >= stop) return on_text(before, stop - at, End::kReal);
      if (match->end > stop) return false;
      if (!before.empty() && !on_text(before, before.size(), End::kReal)) return false;
      on_token(match->id);
      at = match->end;
    }
    return true;
  }

 private:
  const AddedToken* longest_at(std::string_view text) const;

  bool recognise_special_ = false;
  size_t longest_ = 0;
  std::vector<AddedToken> tokens_;                        ///< by first byte, the longest first
  std::array<std::pair<size_t, size_t>, 256> of_byte_{};  ///< the range of those that begin with a byte
  std::bitset<1 << 16> begins_;  ///< the first two bytes of one, or the first of one that is a single byte
};

}  // namespace scatterlm

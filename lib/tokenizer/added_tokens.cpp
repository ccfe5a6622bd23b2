#include "lib/tokenizer/added_tokens.h"

#include <algorithm>

#include "lib/tokenizer/utf8.h"

namespace scatterlm {
namespace {

bool is_white_space(uint32_t code) {
  return (code >= 9 && code <= 13) || code == 0x20 || code == 0x85 || code == 0xa0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f ||
         code == 0x3000;
}

size_t skip_space_forward(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Piece piece = first_utf8_piece(text.substr(at));
    if (piece.kind != Utf8Piece::kCharacter || !is_white_space(code_point(text.substr(at, piece.size)))) break;
    at += piece.size;
  }
  return at;
}

size_t skip_space_backward(std::string_view text, size_t at, size_t least) {
  while (at > least) {
    size_t begin = at - 1;
    while (begin > least && !begins_character(text[begin])) --begin;
    const Utf8Piece piece = first_utf8_piece(text.substr(begin, at - begin));
    if (piece.kind != Utf8Piece::kCharacter || piece.size != at - begin) break;
    if (!is_white_space(code_point(text.substr(begin, piece.size)))) break;
    at = begin;
  }
  return at;
}

uint8_t first_byte(const AddedToken& token) { return static_cast<uint8_t>(token.content[0]); }

size_t two_bytes(char first, char second) {
  return static_cast<size_t>(static_cast<uint8_t>(first)) << 8 | static_cast<uint8_t>(second);
}

}  // namespace

AddedTokenSet::AddedTokenSet(std::vector<AddedToken> tokens, SpecialTokens special)
    : recognise_special_(special == SpecialTokens::kRecognised), tokens_(std::move(tokens)) {
  const bool any = std::any_of(tokens_.begin(), tokens_.end(), [&](const auto& t) { return recognise_special_ || !t.special; });
  if (!any) tokens_.clear();
  std::sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    if (first_byte(a) != first_byte(b)) return first_byte(a) < first_byte(b);
    return a.content.size() > b.content.size();
  });
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    auto& [begin, end] = of_byte_[first_byte(tokens_[i])];
    if (end == 0) begin = i;
    end = i + 1;
    longest_ = std::max(longest_, content.size());
    for (int second = 0; second < 256; ++second)
      if (content.size() == 1 || content[1] == static_cast<char>(second))
        begins_.set(two_bytes(content[0], static_cast<char>(second)));
  }
}

const AddedToken* AddedTokenSet::longest_at(std::string_view text) const {
  const auto [begin, end] = of_byte_[static_cast<uint8_t>(text[0])];
  for (size_t i = begin; i < end; ++i)
    if (text.starts_with(tokens_[i].content)) return &tokens_[i];
  return nullptr;
}

std::optional<AddedTokenSet::Match> AddedTokenSet::find(std::string_view text, size_t from) const {
  if (tokens_.empty()) return std::nullopt;
  for (size_t at = from; at < text.size(); ++at) {
    if (!begins_[two_bytes(text[at], at + 1 < text.size() ? text[at + 1] : '\0')] && at + 1 < text.size()) continue;
    const AddedToken* token = longest_at(text.substr(at));
    if (token == nullptr) continue;
    const size_t end = at + token->content.size();
    if (token->special && !recognise_special_) {
      at = end - 1;
      continue;
    }
    return Match{token->strip_left ? skip_space_backward(text, at, from) : at,
                 token->strip_right ? skip_space_forward(text, end) : end, token->id};
  }
  return std::nullopt;
}

}  // namespace scatterlm

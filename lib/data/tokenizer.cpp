#include "lib/data/tokenizer.h"

#include "lib/util/error.h"

namespace scatterlm {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

struct Utf8Piece {
  enum Kind { kCharacter, kIncomplete, kInvalid } kind;
  size_t size;
};

/// The first character of `text` (not empty), or the longest beginning of one that can not go on. Table 3-7 of the Unicode
/// standard.
Utf8Piece first_piece(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Utf8Piece::kCharacter, 1};
  if (lead < 0xc2 || lead > 0xf4) return {Utf8Piece::kInvalid, 1};
  const size_t size = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // These leads would else allow overlong forms, surrogates and numbers above U+10FFFF.
  uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  for (size_t i = 1; i < size; ++i) {
    if (i == text.size()) return {Utf8Piece::kIncomplete, i};
    if (byte(i) < low || byte(i) > high) return {Utf8Piece::kInvalid, i};
    low = 0x80;
    high = 0xbf;
  }
  return {Utf8Piece::kCharacter, size};
}

}  // namespace

TokenDecoder Tokenizer::decoder() const { return TokenDecoder(*this); }

std::string TokenDecoder::push(uint32_t token) {
  pending_ += tokenizer_->bytes_of(token);
  std::string text;
  size_t at = 0;
  while (at < pending_.size()) {
    const Utf8Piece piece = first_piece(std::string_view(pending_).substr(at));
    if (piece.kind == Utf8Piece::kIncomplete) break;
    text += piece.kind == Utf8Piece::kCharacter ? std::string_view(pending_).substr(at, piece.size) : kReplacement;
    at += piece.size;
  }
  pending_.erase(0, at);
  return text;
}

std::string TokenDecoder::finish() {
  const bool incomplete = !pending_.empty();
  pending_.clear();
  return incomplete ? std::string(kReplacement) : "";
}

std::vector<uint32_t> ByteTokenizer::encode(std::string_view text) const {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  return {bytes, bytes + text.size()};
}

std::string ByteTokenizer::bytes_of(uint32_t token) const {
  return token < 256 ? std::string(1, static_cast<char>(token)) : "";
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  fail_user("unknown tokenizer '{}', there is: bytes", name);
}

}  // namespace scatterlm

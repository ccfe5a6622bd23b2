#include "lib/tokenizer/utf8.h"

#include <cstring>

namespace scatterlm {

Utf8Piece first_utf8_piece(std::string_view text) {
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

size_t valid_utf8_size(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight;
    while (at + sizeof(eight) <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof(eight));
      if (eight & kHighBits) break;
      at += sizeof(eight);
    }
    if (at == text.size()) break;
    const Utf8Piece piece = first_utf8_piece(text.substr(at));
    if (piece.kind != Utf8Piece::kCharacter) break;
    at += piece.size;
  }
  return at;
}

uint32_t code_point(std::string_view character) {
  const auto lead = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return lead;
  uint32_t code = lead & (0xffu >> (character.size() + 1));
  for (const char byte : character.substr(1)) code = code << 6 | (static_cast<uint8_t>(byte) & 0x3f);
  return code;
}

void append_utf8(std::string& text, uint32_t code) {
  const auto add = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      add(0xe0 | code >> 12);
    } else {
      add(0xf0 | code >> 18);
      add(0x80 | (code >> 12 & 0x3f));
    }
    add(0x80 | (code >> 6 & 0x3f));
  }
  add(0x80 | (code & 0x3f));
}

}  // namespace scatterlm

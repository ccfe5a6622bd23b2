// UTF-8 as the Unicode standard's table 3-7 defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace scatterlm {

struct Utf8Piece {
  enum Kind { kCharacter, kIncomplete, kInvalid } kind;
  size_t size;
};

/// The first character of `text` (not empty), or the longest beginning of one that cannot go on.
Utf8Piece first_utf8_piece(std::string_view text);

/// Size of the longest beginning that is valid UTF-8.
size_t valid_utf8_size(std::string_view text);

/// Code point of a valid character.
uint32_t code_point(std::string_view character);
void append_utf8(std::string& text, uint32_t code_point);

/// Whether a character may begin with this byte: one below 0x80 is a character of its own.
inline bool begins_character(char byte) { return (static_cast<uint8_t>(byte) & 0xc0) != 0x80; }

}  // namespace scatterlm

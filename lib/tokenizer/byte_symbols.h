// GPT-2's printable characters for the 256 bytes, in which vocabularies of byte-level BPE are written: bytes 33-126, 161-172
// and 174-255 are the characters of these numbers, the other 68 are, ascending, U+0100 to U+0143 (a space is U+0120).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace scatterlm {

/// The bytes in GPT-2's numbering, which ascends by character.
const std::array<uint8_t, 256>& bytes_by_symbol();

std::string symbols_of_bytes(std::string_view bytes);
/// Nothing if `symbols`, valid UTF-8, has a character that stands for no byte.
std::optional<std::string> bytes_of_symbols(std::string_view symbols);

}  // namespace scatterlm

#include "lib/tokenizer/byte_symbols.h"

#include "lib/tokenizer/utf8.h"

namespace scatterlm {
namespace {

constexpr uint32_t kFirstShifted = 0x100, kNumSymbols = 0x144;

constexpr bool is_printable_byte(uint32_t byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

struct SymbolTables {
  std::array<uint8_t, 256> bytes;              ///< in GPT-2's order
  std::array<std::string, 256> symbol;         ///< by byte
  std::array<int16_t, kNumSymbols> byte_of{};  ///< by code point; -1: none

  SymbolTables() {
    byte_of.fill(-1);
    size_t number = 0;
    const auto add = [&](uint32_t byte, uint32_t code) {
      bytes[number++] = static_cast<uint8_t>(byte);
      append_utf8(symbol[byte], code);
      byte_of[code] = static_cast<int16_t>(byte);
    };
    for (uint32_t byte = 0; byte < 256; ++byte)
      if (is_printable_byte(byte)) add(byte, byte);
    uint32_t code = kFirstShifted;
    for (uint32_t byte = 0; byte < 256; ++byte)
      if (!is_printable_byte(byte)) add(byte, code++);
  }
};

const SymbolTables& symbol_tables() {
  static const SymbolTables tables;
  return tables;
}

}  // namespace

const std::array<uint8_t, 256>& bytes_by_symbol() { return symbol_tables().bytes; }

std::string symbols_of_bytes(std::string_view bytes) {
  std::string symbols;
  for (const char byte : bytes) symbols += symbol_tables().symbol[static_cast<uint8_t>(byte)];
  return symbols;
}

std::optional<std::string> bytes_of_symbols(std::string_view symbols) {
  std::string bytes;
  while (!symbols.empty()) {
    const size_t size = first_utf8_piece(symbols).size;
    const uint32_t code = code_point(symbols.substr(0, size));
    if (code >= kNumSymbols || symbol_tables().byte_of[code] < 0) return std::nullopt;
    bytes += static_cast<char>(symbol_tables().byte_of[code]);
    symbols.remove_prefix(size);
  }
  return bytes;
}

}  // namespace scatterlm

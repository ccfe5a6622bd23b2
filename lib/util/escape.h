#pragma once
#include <string>
#include <string_view>

namespace scatterlm {

/// Whether a terminal would take this byte for a command, or C for the end of the text.
inline bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// The text with "\x1b" in place of each control character, line breaks among them: fit for one line of a message.
inline std::string escape_control(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string escaped;
  for (const char c : text) {
    if (!is_control(c)) {
      escaped += c;
      continue;
    }
    escaped += "\\x";
    escaped += kDigits[static_cast<unsigned char>(c) >> 4];
    escaped += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return escaped;
}

}  // namespace scatterlm

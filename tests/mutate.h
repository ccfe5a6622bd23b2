// Broken inputs for the fuzz tests of readers: a few random edits of a valid input, the same on every machine for one seed.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>

namespace scatterlm {

/// Mutated inputs that one fuzz test tries: SCATTERLM_FUZZ, or 100000.
inline int64_t fuzz_count() {
  const char* text = std::getenv("SCATTERLM_FUZZ");
  return text ? std::strtoll(text, nullptr, 10) : 100000;
}

/// Below `bound` (> 0). std::uniform_int_distribution differs between standard libraries; the bias of % does not matter here.
inline size_t pick(std::mt19937_64& rng, size_t bound) { return static_cast<size_t>(rng() % bound); }

/// What breaks parsers: signs, limits of integers, brackets that open only, quotes, line ends, YAML markers, stray UTF-8.
inline std::string_view interesting_token(std::mt19937_64& rng) {
  using namespace std::string_view_literals;
  static constexpr std::string_view tokens[] = {"-1"sv,
                                                "0"sv,
                                                "1e999"sv,
                                                "nan"sv,
                                                ".inf"sv,
                                                "null"sv,
                                                "~"sv,
                                                "true"sv,
                                                "9223372036854775807"sv,
                                                "-9223372036854775808"sv,
                                                "18446744073709551616"sv,
                                                "[[[[[[[["sv,
                                                "{{{{{{{{"sv,
                                                "]"sv,
                                                "}"sv,
                                                "\""sv,
                                                "'"sv,
                                                ": "sv,
                                                ","sv,
                                                "- "sv,
                                                "\n"sv,
                                                "\t"sv,
                                                "#"sv,
                                                "&a "sv,
                                                "*a"sv,
                                                "<<: *a"sv,
                                                "!!int "sv,
                                                "---\n"sv,
                                                "|\n"sv,
                                                "%"sv,
                                                "\\u0000"sv,
                                                "\0"sv,
                                                "\0\0\0\0\0\0\0\0"sv,
                                                "\xff\xff\xff\xff"sv,
                                                "\xff\xff\xff\xff\xff\xff\xff\x7f"sv,
                                                "\x80"sv,
                                                "\xef\xbb\xbf"sv,
                                                "\xed\xa0\x80"sv};
  return tokens[pick(rng, std::size(tokens))];
}

/// One to four edits: flip a bit, change a byte, cut the end, drop a piece, repeat a piece, swap in or insert a token from the
/// list above.
inline std::string mutate(const std::string& input, std::mt19937_64& rng) {
  std::string text = input;
  for (size_t edits = 1 + pick(rng, 4); edits > 0; --edits) {
    const size_t at = pick(rng, text.size() + 1);
    const size_t length = std::min(text.size() - at, 1 + pick(rng, 32));
    switch (pick(rng, 7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << pick(rng, 8)));
        break;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(pick(rng, 256));
        break;
      case 2: text.resize(at); break;
      case 3: text.erase(at, length); break;
      case 4: text.insert(pick(rng, text.size() + 1), text.substr(at, length)); break;
      case 5: text.replace(at, length, interesting_token(rng)); break;
      default: text.insert(at, interesting_token(rng));
    }
  }
  return text;
}

}  // namespace scatterlm

#include "lib/tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <bitset>
#include <cstdlib>
#include <memory>

#include "lib/tokenizer/utf8.h"
#include "lib/util/error.h"

namespace scatterlm {
namespace {

constexpr uint32_t kNumCodePoints = 0x110000;

/// By code point: it stays as it is, whatever its neighbours are. Normalization works between two of these.
using StableCharacters = std::bitset<kNumCodePoints>;

/// Decompositions of one step, canonical ones only; empty for none.
struct CanonicalPair {
  int32_t first = -1, second = -1;
};

CanonicalPair canonical_pair(uint32_t code) {
  utf8proc_int32_t parts[8];
  int boundary = 0;
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts, std::size(parts), UTF8PROC_DECOMPOSE, &boundary);
  if (count == 1 && parts[0] == static_cast<utf8proc_int32_t>(code)) return {};
  return {parts[0], count > 1 ? parts[count - 1] : -1};
}

std::unique_ptr<StableCharacters> find_stable_characters() {
  auto stable = std::make_unique<StableCharacters>();
  stable->set();
  const auto unstable = [&](int64_t first, int64_t last) {
    for (int64_t code = first; code <= last; ++code) stable->reset(static_cast<size_t>(code));
  };
  for (uint32_t code = 0xc0; code < kNumCodePoints; ++code) {
    const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(code));
    if (property->combining_class != 0) stable->reset(code);
    const bool decomposes = property->decomp_type == 0 && property->decomp_seqindex != UINT16_MAX;
    if (!decomposes || (code >= 0xac00 && code <= 0xd7a3)) continue;
    const CanonicalPair pair = canonical_pair(code);
    if (pair.second >= 0) stable->reset(static_cast<size_t>(pair.second));
    std::string character, composed;
    append_utf8(character, code);
    char* normal = reinterpret_cast<char*>(utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(character.c_str())));
    if (normal == nullptr || character != normal) stable->reset(code);
    std::free(normal);
  }
  unstable(0x1161, 0x1175);  // Hangul vowels and final consonants join the syllable before them
  unstable(0x11a8, 0x11c2);
  return stable;
}

bool is_stable(std::string_view character) {
  static const auto stable = find_stable_characters();
  return stable->test(code_point(character));
}

void append_normalized(std::string_view text, std::string& out) {
  utf8proc_uint8_t* normal = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()), &normal,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (size < 0) fail("[append_nfc] {}", utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(normal), static_cast<size_t>(size));
  std::free(normal);
}

}  // namespace

bool is_surely_nfc(std::string_view text) {
  constexpr char kFirstCombining = '\xcc';  // lead of U+0300; no byte of a character below it is as large
  const auto small = [](char byte) { return static_cast<uint8_t>(byte) < static_cast<uint8_t>(kFirstCombining); };
  return std::all_of(text.begin(), text.end(), small);
}

void append_nfc(std::string_view text, std::string& out) {
  if (is_surely_nfc(text)) {
    out += text;
    return;
  }
  size_t last_stable = 0;  // where the last stable character begins: the one before an unstable character may change
  size_t copied = 0;
  size_t at = 0;
  while (at < text.size()) {
    const size_t size = static_cast<uint8_t>(text[at]) < 0x80 ? 1 : first_utf8_piece(text.substr(at)).size;
    if (size == 1 || is_stable(text.substr(at, size))) {
      last_stable = at;
      at += size;
      continue;
    }
    size_t end = at + size;
    while (end < text.size()) {
      const size_t next = first_utf8_piece(text.substr(end)).size;
      if (next == 1 || is_stable(text.substr(end, next))) break;
      end += next;
    }
    const size_t from = std::max(last_stable, copied);
    out += text.substr(copied, from - copied);
    append_normalized(text.substr(from, end - from), out);
    copied = last_stable = at = end;
  }
  out += text.substr(copied);
}

}  // namespace scatterlm

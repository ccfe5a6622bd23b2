#include "lib/data/npy_header.h"

#include <charconv>
#include <string_view>

namespace scatterlm {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";

/// What follows `'key':` in the header's dict, which NumPy writes as {'descr': '<u2', 'fortran_order': False, 'shape': (5,), }.
std::string_view value_of(std::string_view dict, std::string_view key, const std::string& path) {
  const size_t at = dict.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) fail_user("{}: npy header without '{}'", path, key);
  const std::string_view rest = dict.substr(at + key.size() + 3);
  return rest.substr(std::min(rest.find_first_not_of(' '), rest.size()));
}

TokenType parse_type(std::string_view value, const std::string& path) {
  if (value.starts_with("'<u2'")) return TokenType::kU16;
  if (value.starts_with("'<u4'")) return TokenType::kU32;
  fail_user("{}: npy array of dtype {:?}, tokens must be '<u2' or '<u4' (uint16 or uint32)", path,
            value.substr(0, std::min<size_t>(value.find(','), 16)));
}

int64_t parse_length(std::string_view value, const std::string& path) {
  const std::string_view shape = value.substr(0, std::min(value.find(')'), value.size()));
  int64_t length = 0;
  const char* const end = shape.data() + shape.size();
  if (shape.starts_with('(')) {
    const auto [stop, error] = std::from_chars(shape.data() + 1, end, length);
    if (error == std::errc() && std::string_view(stop, end) == ",") return length;
  }
  fail_user("{}: npy array of shape {:?}, tokens must have one dimension", path,
            value.substr(0, std::min<size_t>(shape.size() + 1, 40)));
}

}  // namespace

bool NpyHeader::is_npy(const MappedFile& file) {
  return file.size() >= kNpyMagic.size() && std::memcmp(file.data(), kNpyMagic.data(), kNpyMagic.size()) == 0;
}

NpyHeader::NpyHeader(const MappedFile& file, const std::string& path) {
  // Magic, u8 major, u8 minor, then the length of the dict: u16 in version 1, u32 later.
  const auto version_at = static_cast<int64_t>(kNpyMagic.size());
  const auto size = static_cast<int64_t>(file.size());
  if (size < version_at + 6) fail_user("{}: truncated npy header", path);
  const int version = load_element<uint8_t>(file.data() + version_at, 0);
  if (version < 1 || version > 3) fail_user("{}: npy version {}, known are 1 to 3", path, version);
  const std::byte* const length = file.data() + version_at + 2;
  const int64_t dict_bytes = version == 1 ? load_element<uint16_t>(length, 0) : load_element<uint32_t>(length, 0);
  const int64_t dict_begin = version_at + (version == 1 ? 4 : 6);
  if (dict_bytes > size - dict_begin) fail_user("{}: truncated npy header", path);

  const std::string_view dict(reinterpret_cast<const char*>(file.data()) + dict_begin, static_cast<size_t>(dict_bytes));
  type = parse_type(value_of(dict, "descr", path), path);
  num_tokens = parse_length(value_of(dict, "shape", path), path);
  num_bytes = dict_begin + dict_bytes;
}

}  // namespace scatterlm

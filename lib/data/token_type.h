// Widths in which token files hold their tokens.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lib/util/error.h"

namespace scatterlm {

/// Numbered as in a Megatron index, whose 6 and 7 are floating-point numbers.
enum class TokenType : uint8_t { kU8 = 1, kI8 = 2, kI16 = 3, kI32 = 4, kI64 = 5, kU16 = 8, kU32 };

/// Calls f(T{}) for the integer type T behind `type`.
template <class F>
auto with_token_type(TokenType type, F&& f) {
  switch (type) {
    case TokenType::kU8: return f(uint8_t{});
    case TokenType::kI8: return f(int8_t{});
    case TokenType::kI16: return f(int16_t{});
    case TokenType::kI32: return f(int32_t{});
    case TokenType::kI64: return f(int64_t{});
    case TokenType::kU16: return f(uint16_t{});
    case TokenType::kU32: return f(uint32_t{});
  }
  fail("[token_type] no such type: {}", static_cast<int>(type));
}

/// Bytes of one token.
inline int64_t width_of(TokenType type) {
  return with_token_type(type, [](auto token) { return static_cast<int64_t>(sizeof(token)); });
}

/// Element i of an array in a file, which need not be aligned.
template <class T>
T load_element(const std::byte* array, int64_t i) {
  T value;
  std::memcpy(&value, array + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

}  // namespace scatterlm

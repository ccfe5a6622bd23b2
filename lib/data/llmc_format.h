// Layout of llm.c's token files: 256 int32 (magic, version, number of tokens, zeros), then the tokens. Files that we write have
// a checksum and the hash of their tokenizer among the zeros, which llm.c does not read.
#pragma once
#include <cstdint>
#include <string_view>

#include "lib/data/token_type.h"

namespace scatterlm {

struct LlmcFormat {
  int32_t magic;
  int32_t version;
  TokenType type;
};

inline constexpr LlmcFormat kLlmcFormats[] = {{20240520, 1, TokenType::kU16},   // GPT-2
                                              {20240801, 7, TokenType::kU32}};  // Llama-3
inline constexpr int64_t kLlmcHeaderBytes = 1024;
/// Then 16 lower-case digits: XXH3-64 of the tokens' bytes.
inline constexpr std::string_view kChecksumMark = "XXH3";
inline constexpr int64_t kChecksumMarkAt = 12, kChecksumDigits = 16;
/// Then 16 lower-case digits: the hash of the tokenizer that made the tokens (TokenizerFiles::hash).
inline constexpr std::string_view kTokenizerMark = "TOKN";
inline constexpr int64_t kTokenizerMarkAt = 32;

}  // namespace scatterlm

// Small tokenizers as the tests need them.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lib/tokenizer/byte_symbols.h"

namespace scatterlm {

using Merges = std::vector<std::pair<std::string, std::string>>;  ///< of bytes

/// 256 bytes in GPT-2's order, then the result of each merge, whose parts must be tokens.
inline nlohmann::json small_vocabulary(const Merges& merges) {
  nlohmann::json vocabulary = nlohmann::json::object();
  const auto add = [&](const std::string& bytes) {
    const size_t number = vocabulary.size();
    vocabulary.emplace(symbols_of_bytes(bytes), number);
  };
  for (const uint8_t byte : bytes_by_symbol()) add(std::string(1, static_cast<char>(byte)));
  for (const auto& [left, right] : merges) add(left + right);
  return vocabulary;
}

/// A tokenizer.json with GPT-2's pattern, and "<|endoftext|>" behind the vocabulary.
inline nlohmann::json small_tokenizer(const Merges& merges) {
  const auto vocabulary = small_vocabulary(merges);
  auto pairs = nlohmann::json::array();
  for (const auto& [left, right] : merges) pairs.push_back({symbols_of_bytes(left), symbols_of_bytes(right)});
  return {
      {"version", "1.0"},
      {"added_tokens", {{{"id", vocabulary.size()}, {"content", "<|endoftext|>"}, {"special", true}, {"normalized", false}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", pairs}}}};
}

inline const Merges kSmallMerges = {{"l", "l"}, {"h", "e"}, {"he", "ll"}, {"hell", "o"}, {" ", "w"}, {"o", "r"}, {" w", "or"}};

}  // namespace scatterlm

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "lib/tokenizer/bpe_builder.h"
#include "lib/tokenizer/read_tokenizer.h"
#include "lib/util/error.h"
#include "lib/util/escape.h"

namespace scatterlm {
namespace {

struct SpecialName {
  std::string_view name;
  uint32_t id;
};

/// What a rank file does not say.
struct TiktokenEncoding {
  std::string_view name, pattern;
  std::vector<SpecialName> special;
};

const std::vector<TiktokenEncoding>& tiktoken_encodings() {
  static const std::vector<TiktokenEncoding> encodings = {
      {"r50k_base", "gpt2", {{"<|endoftext|>", 50256}}},
      {"p50k_base", "gpt2", {{"<|endoftext|>", 50256}}},
      {"cl100k_base",
       "cl100k",
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {"o200k_base", "o200k", {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
      {"llama3",
       "llama3",
       {{"<|begin_of_text|>", 128000},
        {"<|end_of_text|>", 128001},
        {"<|start_header_id|>", 128006},
        {"<|end_header_id|>", 128007},
        {"<|eot_id|>", 128009}}},
      {"qwen", "qwen", {{"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}}},
  };
  return encodings;
}

const TiktokenEncoding& encoding_of(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  std::vector<std::string_view> names;
  for (const TiktokenEncoding& encoding : tiktoken_encodings()) {
    if (name.find(encoding.name) != name.npos) return encoding;
    names.push_back(encoding.name);
  }
  fail_user(
      "{}: a tiktoken file does not say how text is split before it is merged: give it a name that holds one of {}, such as "
      "mine.cl100k_base.tiktoken",
      path, fmt::join(names, ", "));
}

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/// Nothing if it is not base64 with its padding.
std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string bytes;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int value = i < text.size() - padding ? base64_value(text[i]) : 0;
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    if (i % 4 != 3) continue;
    for (const int shift : {16, 8, 0}) bytes += static_cast<char>(bits >> shift);
    bits = 0;
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

std::optional<uint32_t> parse_rank(std::string_view text) {
  constexpr size_t kMostDigits = 8;
  if (text.empty() || text.size() > kMostDigits) return std::nullopt;
  uint32_t rank = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    rank = rank * 10 + static_cast<uint32_t>(c - '0');
  }
  if (rank >= kMostTokens) return std::nullopt;
  return rank;
}

using Ranks = std::unordered_map<std::string_view, uint32_t>;

/// Whatever two tokens have the bytes of a third may merge, with the rank of that one.
MergeTable all_merges(const std::vector<std::string>& tokens, const Ranks& ranks) {
  struct Pair {
    uint32_t left, right, merged;
  };
  std::vector<Pair> pairs;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view bytes = tokens[id];
    for (size_t size = 1; size < bytes.size(); ++size) {
      const auto left = ranks.find(bytes.substr(0, size));
      if (left == ranks.end()) continue;
      const auto right = ranks.find(bytes.substr(size));
      if (right != ranks.end()) pairs.push_back({left->second, right->second, static_cast<uint32_t>(id)});
    }
  }
  MergeTable table(pairs.size());
  for (const Pair& pair : pairs) table.add(pair.left, pair.right, {pair.merged, pair.merged});
  return table;
}

}  // namespace

BpeModel read_tiktoken(std::string_view text, const std::string& path) {
  constexpr size_t kLongestToken = 4096;  // bytes; the time for all_merges grows with the square
  const TiktokenEncoding& encoding = encoding_of(path);
  BpeModel model;
  for (int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line(text.begin(), std::find(text.begin(), text.end(), '\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t space = std::min(line.find(' '), line.size());
    const auto bytes = decode_base64(line.substr(0, space));
    const auto rank = parse_rank(line.substr(std::min(space + 1, line.size())));
    if (!bytes || !rank || bytes->size() > kLongestToken)
      fail_user("{}:{}: not a token in base64, a space and its rank: '{}'", path, number, escape_control(line.substr(0, 60)));
    if (*rank >= model.token_bytes.size()) model.token_bytes.resize(*rank + size_t{1});
    if (!model.token_bytes[*rank].empty()) fail_user("{}:{}: rank {} is given twice", path, number, *rank);
    model.token_bytes[*rank] = *bytes;
  }
  Ranks ranks;
  ranks.reserve(model.token_bytes.size());
  for (size_t id = 0; id < model.token_bytes.size(); ++id)
    if (!model.token_bytes[id].empty() && !ranks.emplace(model.token_bytes[id], static_cast<uint32_t>(id)).second)
      fail_user("{}: the tokens of rank {} and {} are the same", path, ranks.at(model.token_bytes[id]), id);
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const auto found = ranks.find(std::string_view(&c, 1));
    if (found == ranks.end()) fail_user("{}: no token for byte {}, so not every text could be written", path, byte);
    model.byte_tokens[static_cast<size_t>(byte)] = found->second;
  }
  model.merges = all_merges(model.token_bytes, ranks);
  model.whole_pieces_first = true;
  for (const auto& [name, id] : encoding.special) {
    if (id >= model.token_bytes.size()) model.token_bytes.resize(id + size_t{1});
    // A file of another size is not the published one.
    if (!model.token_bytes[id].empty())
      fail_user("{}: rank {} is that of a token, but {} has the number in {}", path, id, name, encoding.name);
    model.token_bytes[id] = name;
    model.added.push_back({.id = id, .content = std::string(name), .special = true});
  }
  model.eot = find_end_of_text(model.added);
  model.pre_tokenizer.steps.push_back({SplitPattern(known_pattern(encoding.pattern), path)});
  return model;
}

}  // namespace scatterlm

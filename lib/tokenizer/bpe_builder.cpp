#include "lib/tokenizer/bpe_builder.h"

#include "lib/io/json.h"
#include "lib/tokenizer/byte_symbols.h"
#include "lib/util/error.h"

namespace scatterlm {

uint32_t token_number(const nlohmann::json& value, std::string_view name, const std::string& where) {
  const bool fits = value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() < kMostTokens;
  if (!fits) fail_user("{}: the number of token {} is not one from 0 to {}", where, quote(std::string(name)), kMostTokens - 1);
  return value.get<uint32_t>();
}

void BpeBuilder::add_token(const std::string& symbols, uint32_t id) {
  if (symbols.empty()) fail_user("{}: token {} is empty", where_, id);
  if (id >= model_.token_bytes.size()) model_.token_bytes.resize(id + size_t{1});
  if (!model_.token_bytes[id].empty()) fail_user("{}: number {} stands for two tokens, {} is one", where_, id, quote(symbols));
  // What is not written in these characters is no result of merges: perhaps the name of a special token.
  model_.token_bytes[id] = bytes_of_symbols(symbols).value_or(symbols);
  tokens_.emplace(symbols, id);
}

void BpeBuilder::add_vocabulary(const nlohmann::json& vocabulary) {
  if (!vocabulary.is_object()) fail_user("{}: the vocabulary is not an object of token: number", where_);
  tokens_.reserve(vocabulary.size());
  for (const auto& [symbols, number] : vocabulary.items()) add_token(symbols, token_number(number, symbols, where_));
}

uint32_t BpeBuilder::require_token(std::string_view symbols, std::string_view what) const {
  const auto found = tokens_.find(symbols);
  if (found == tokens_.end())
    fail_user("{}: merge {} {} {}, which is not in the vocabulary", where_, next_rank_ + 1, what, quote(std::string(symbols)));
  return found->second;
}

void BpeBuilder::add_merge(std::string_view left, std::string_view right) {
  const uint32_t first = require_token(left, "begins with"), second = require_token(right, "ends with");
  merged_ = left;
  merged_ += right;
  const uint32_t merged = require_token(merged_, "makes");
  if (!model_.merges.add(first, second, {next_rank_, merged}))
    fail_user("{}: merge {}, of {} and {}, is given twice", where_, next_rank_ + 1, quote(std::string(left)),
              quote(std::string(right)));
  ++next_rank_;
}

void BpeBuilder::add_added(AddedToken token) {
  if (token.content.empty()) fail_user("{}: added token {} is empty", where_, token.id);
  if (!added_.insert(token.content).second) fail_user("{}: added token {} is given twice", where_, quote(token.content));
  const auto found = tokens_.find(token.content);
  if (found != tokens_.end() && found->second != token.id)
    fail_user("{}: token {} has the number {} in the vocabulary and {} among the added ones", where_, quote(token.content),
              found->second, token.id);
  if (found == tokens_.end()) {
    if (token.id >= model_.token_bytes.size()) model_.token_bytes.resize(token.id + size_t{1});
    if (!model_.token_bytes[token.id].empty())
      fail_user("{}: added token {} has the number {}, which stands for another token", where_, quote(token.content), token.id);
  }
  model_.token_bytes[token.id] = token.content;
  model_.added.push_back(std::move(token));
}

BpeModel BpeBuilder::finish(PreTokenizer pre_tokenizer) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string symbol = symbols_of_bytes(std::string(1, static_cast<char>(byte)));
    const auto found = tokens_.find(symbol);
    if (found == tokens_.end())
      fail_user("{}: the vocabulary has no token for byte {} ({}), so not every text could be written", where_, byte,
                quote(symbol));
    model_.byte_tokens[static_cast<size_t>(byte)] = found->second;
  }
  model_.pre_tokenizer = std::move(pre_tokenizer);
  model_.eot = find_end_of_text(model_.added);
  return std::move(model_);
}

std::optional<uint32_t> find_end_of_text(const std::vector<AddedToken>& added) {
  constexpr std::string_view kNames[] = {"<|endoftext|>",
                                         "<|end_of_text|>",
                                         "<\xef\xbd\x9c"
                                         "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
                                         "</s>",
                                         "<eos>",
                                         "<|eos|>",
                                         "[EOS]",
                                         "<EOT>"};
  for (const std::string_view name : kNames)
    for (const AddedToken& token : added)
      if (token.content == name) return token.id;
  return std::nullopt;
}

}  // namespace scatterlm

#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "lib/tokenizer/bpe_tokenizer.h"

namespace scatterlm {

/// A BpeModel from a vocabulary of unknown origin, written in GPT-2's characters for bytes. Errors begin with `where`.
class BpeBuilder {
 public:
  explicit BpeBuilder(std::string where) : where_(std::move(where)) {}

  /// An object of token -> number.
  void add_vocabulary(const nlohmann::json& vocabulary);
  void begin_merges(size_t count) { model_.merges = MergeTable(count); }
  /// Ranks ascend from call to call.
  void add_merge(std::string_view left, std::string_view right);
  /// The content may be that of a token of the vocabulary, with the same number.
  void add_added(AddedToken token);
  /// Throws Error unless every byte has a token. Finds the end-of-text token among the added ones by the names that are known.
  BpeModel finish(PreTokenizer pre_tokenizer);

  BpeModel& model() { return model_; }
  bool has(std::string_view symbols) const { return tokens_.contains(symbols); }
  uint32_t number_of(std::string_view symbols) const { return tokens_.find(symbols)->second; }

 private:
  void add_token(const std::string& symbols, uint32_t id);
  uint32_t require_token(std::string_view symbols, std::string_view what) const;

  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  std::string where_;
  BpeModel model_;
  std::unordered_map<std::string, uint32_t, TextHash, std::equal_to<>> tokens_;
  std::unordered_set<std::string> added_;
  uint32_t next_rank_ = 0;
  std::string merged_;  ///< of the merge that is added
};

/// Tokens are below it: bounds the memory for their table.
inline constexpr int64_t kMostTokens = int64_t{1} << 22;

/// The number of a token in the entry `name` of a file. Throws Error "WHERE: ..." unless it is one.
uint32_t token_number(const nlohmann::json& value, std::string_view name, const std::string& where);

/// Names under which published tokenizers end a document, in the order of preference.
std::optional<uint32_t> find_end_of_text(const std::vector<AddedToken>& added);

}  // namespace scatterlm

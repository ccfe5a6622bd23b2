#include "lib/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <queue>
#include <set>

#include "lib/io/json.h"
#include "lib/tokenizer/byte_symbols.h"
#include "lib/tokenizer/pre_tokenizer.h"
#include "lib/tokenizer/utf8.h"
#include "lib/util/error.h"
#include "lib/util/escape.h"
#include "lib/util/progress.h"

namespace scatterlm {
namespace {

using Pair = std::pair<uint32_t, uint32_t>;

struct PairHash {
  size_t operator()(const Pair& pair) const { return ((uint64_t{pair.first} << 32 | pair.second) * 0x9e3779b97f4a7c15) >> 16; }
};

struct TrainingPiece {
  std::vector<uint32_t> tokens;
  int64_t count;
};

/// The pairs of all pieces with their counts, kept true while pairs are merged.
class PairStatistics {
 public:
  explicit PairStatistics(const PieceCounts& pieces) {
    std::array<uint32_t, 256> token_of{};
    for (size_t i = 0; i < 256; ++i) token_of[bytes_by_symbol()[i]] = static_cast<uint32_t>(i);
    pieces_.reserve(pieces.size());
    for (const auto& [bytes, count] : pieces) {
      if (bytes.size() < 2) continue;
      TrainingPiece piece{{}, count};
      piece.tokens.reserve(bytes.size());
      for (const char byte : bytes) piece.tokens.push_back(token_of[static_cast<uint8_t>(byte)]);
      const auto index = static_cast<uint32_t>(pieces_.size());
      for (size_t i = 0; i + 1 < piece.tokens.size(); ++i) change({piece.tokens[i], piece.tokens[i + 1]}, count, index);
      pieces_.push_back(std::move(piece));
    }
    for (const auto& [pair, entry] : pairs_) heap_.push({entry.count, pair});
    changed_.clear();
  }

  /// The most frequent pair and its count; a count of 0 where there is none.
  std::pair<Pair, int64_t> best() {
    while (!heap_.empty()) {
      const Candidate top = heap_.top();
      const int64_t now = pairs_.at(top.pair).count;
      if (now == top.count) return {top.pair, now};
      heap_.pop();
      if (now > 0) heap_.push({now, top.pair});
    }
    return {};
  }

  void merge(const Pair& pair, uint32_t merged) {
    Entry& entry = pairs_.at(pair);
    const auto places = std::move(entry.pieces);
    entry.pieces = {};
    for (const uint32_t index : places) merge_piece(pieces_[index], index, pair, merged);
    entry.count = 0;
    for (const Pair& grown : changed_) heap_.push({pairs_.at(grown).count, grown});
    changed_.clear();
  }

 private:
  struct Entry {
    int64_t count = 0;
    std::vector<uint32_t> pieces;  ///< that have or had it; in ascending order, some twice
  };
  struct Candidate {
    int64_t count;
    Pair pair;
    bool operator<(const Candidate& other) const { return count != other.count ? count < other.count : pair > other.pair; }
  };

  void change(const Pair& pair, int64_t by, uint32_t piece) {
    Entry& entry = pairs_[pair];
    entry.count += by;
    if (by < 0) return;
    if (entry.pieces.empty() || entry.pieces.back() != piece) entry.pieces.push_back(piece);
    if (changed_.empty() || changed_.back() != pair) changed_.push_back(pair);
  }

  void merge_piece(TrainingPiece& piece, uint32_t index, const Pair& pair, uint32_t merged) {
    auto& tokens = piece.tokens;
    size_t to = 0;
    for (size_t from = 0; from < tokens.size(); ++to) {
      const bool here = from + 1 < tokens.size() && tokens[from] == pair.first && tokens[from + 1] == pair.second;
      if (!here) {
        tokens[to] = tokens[from++];
        continue;
      }
      if (to > 0) {
        change({tokens[to - 1], pair.first}, -piece.count, index);
        change({tokens[to - 1], merged}, piece.count, index);
      }
      if (from + 2 < tokens.size()) {
        change({pair.second, tokens[from + 2]}, -piece.count, index);
        change({merged, tokens[from + 2]}, piece.count, index);
      }
      tokens[to] = merged;
      from += 2;
    }
    tokens.resize(to);
  }

  std::vector<TrainingPiece> pieces_;
  std::unordered_map<Pair, Entry, PairHash> pairs_;
  std::priority_queue<Candidate> heap_;  ///< counts may be out of date, never too low
  std::vector<Pair> changed_;            ///< pairs whose count has grown since the last merge
};

}  // namespace

LearnedMerges learn_merges(const PieceCounts& pieces, int64_t vocab_size, int64_t min_count) {
  LearnedMerges learned;
  for (const uint8_t byte : bytes_by_symbol()) learned.token_bytes.emplace_back(1, static_cast<char>(byte));
  PairStatistics statistics(pieces);
  const int64_t wanted = vocab_size - std::ssize(learned.token_bytes);
  Progress progress("learning", wanted, "merges");
  while (std::ssize(learned.pairs) < wanted) {
    const auto [pair, count] = statistics.best();
    if (count < std::max<int64_t>(min_count, 1)) break;
    statistics.merge(pair, static_cast<uint32_t>(learned.token_bytes.size()));
    learned.pairs.push_back(pair);
    learned.token_bytes.push_back(learned.token_bytes[pair.first] + learned.token_bytes[pair.second]);
    progress.update(std::ssize(learned.pairs));
  }
  if (std::ssize(learned.pairs) == wanted) progress.finish();
  return learned;
}

void check_special_tokens(const std::vector<std::string>& special, std::string_view pattern) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.steps.push_back({SplitPattern(pattern, "the split pattern")});
  PieceFinder finder(pre_tokenizer);
  std::set<std::string_view> names;
  for (const std::string& name : special) {
    if (name.empty()) fail_user("--special: a name must not be empty");
    if (valid_utf8_size(name) < name.size()) fail_user("--special {}: not valid UTF-8", quote(name));
    if (!names.insert(name).second) fail_user("--special '{}' is given twice", escape_control(name));
    const auto bytes = bytes_of_symbols(name);  // of the token whose name in tokenizer.json it would be
    if (!bytes || bytes->empty()) continue;
    int num_pieces = 0;
    if (valid_utf8_size(*bytes) == bytes->size())
      finder.find(*bytes, bytes->size(), PieceFinder::End::kReal, [&](std::string_view) { ++num_pieces; });
    if (num_pieces <= 1)
      fail_user("--special '{}' may also be a word that is learned; put it in brackets, for example '<|{}|>'", name, name);
  }
}

std::string dump_tokenizer_json(const LearnedMerges& learned, const std::vector<std::string>& special,
                                std::string_view pattern) {
  using json = nlohmann::ordered_json;
  std::vector<std::string> symbols;
  json vocabulary = json::object(), merges = json::array(), added = json::array();
  auto& entries = vocabulary.get_ref<json::object_t&>();
  for (size_t token = 0; token < learned.token_bytes.size(); ++token) {
    symbols.push_back(symbols_of_bytes(learned.token_bytes[token]));
    entries.push_back({symbols.back(), token});  // emplace would look for each among those before it
  }
  for (const auto& [left, right] : learned.pairs) merges.push_back({symbols[left], symbols[right]});
  for (const std::string& content : special) {
    added.push_back({{"id", symbols.size() + added.size()},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const json split = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const json file = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", json::array({split, bytes})}}},
                     {"post_processor", nullptr},
                     {"decoder", bytes},
                     {"model",
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", false},
                       {"vocab", vocabulary},
                       {"merges", merges}}}};
  return file.dump(1) + "\n";
}

}  // namespace scatterlm

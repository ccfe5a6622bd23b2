#include "lib/tokenizer/inspect.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <random>

#include "lib/data/token_file.h"
#include "lib/tokenizer/tokenizer_files.h"
#include "lib/util/error.h"
#include "lib/util/escape.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

constexpr int64_t kMaxVocabulary = int64_t{1} << 24;  // as the range of model.vocab_size
constexpr int64_t kSampleTokens = 80;
constexpr size_t kCommonTokens = 8;

struct Statistics {
  std::vector<int64_t> counts;  ///< by token, up to the largest
  int64_t tokens = 0;
};

Statistics count_tokens(const std::vector<TokenFile>& files) {
  Statistics statistics;
  std::vector<int64_t> tokens;
  for (const TokenFile& file : files) {
    for (int64_t begin = 0; begin < file.num_tokens(); begin += static_cast<int64_t>(tokens.size())) {
      tokens.resize(static_cast<size_t>(std::min(file.num_tokens() - begin, int64_t{1} << 16)));
      file.read(begin, static_cast<int64_t>(tokens.size()), kMaxVocabulary, tokens.data());
      const auto largest = static_cast<size_t>(*std::max_element(tokens.begin(), tokens.end()));
      if (largest >= statistics.counts.size()) statistics.counts.resize(largest + 1, 0);
      for (int64_t token : tokens) ++statistics.counts[static_cast<size_t>(token)];
    }
    statistics.tokens += file.num_tokens();
  }
  return statistics;
}

std::string describe_file(const TokenFile& file) {
  std::string text = fmt::format("{}: {}, {}, {} tokens", escape_control(file.path()), format_name(file.format()),
                                 type_name(file.type()), file.num_tokens());
  if (file.documents()) text += fmt::format(", {} documents", file.documents()->num_documents());
  return text + "\n";
}

/// `text` is null where the tokens are not the tokenizer's.
std::string describe_counts(const Statistics& statistics, const Tokenizer* text) {
  const auto& counts = statistics.counts;
  std::vector<size_t> order(counts.size());
  for (size_t token = 0; token < order.size(); ++token) order[token] = token;
  const size_t shown = std::min(kCommonTokens, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(),
                    [&](size_t a, size_t b) { return counts[a] != counts[b] ? counts[a] > counts[b] : a < b; });

  const auto used = static_cast<int64_t>(counts.size()) - std::count(counts.begin(), counts.end(), 0);
  std::string result = fmt::format("{} tokens, {} different, the largest {}\n", statistics.tokens, used, counts.size() - 1);
  const auto eot = text ? text->eot() : std::nullopt;
  if (eot && counts.size() > *eot) result += fmt::format("{} end-of-text tokens ({})\n", counts[*eot], *eot);
  result += "most common:";
  for (size_t i = 0; i < shown && counts[order[i]] > 0; ++i) {
    const size_t token = order[i];
    const std::string bytes = text ? text->bytes_of(static_cast<uint32_t>(token)) : "";
    result += fmt::format("{} {}", i == 0 ? "" : ",", token);
    if (!bytes.empty()) result += fmt::format(" {:?}", bytes);
    result += fmt::format(" {:.3g} %", 100.0 * static_cast<double>(counts[token]) / static_cast<double>(statistics.tokens));
  }
  return result + "\n";
}

std::string describe_sample(const TokenFile& file, int64_t begin, const Tokenizer* text) {
  std::vector<int64_t> tokens(static_cast<size_t>(std::min(kSampleTokens, file.num_tokens() - begin)));
  file.read(begin, static_cast<int64_t>(tokens.size()), kMaxVocabulary, tokens.data());
  const std::string place = fmt::format("{}, from token {}:\n", escape_control(file.path()), begin);
  if (!text) return fmt::format("{}  {}\n", place, fmt::join(tokens, " "));
  auto decoder = text->decoder();
  std::string decoded;
  for (int64_t token : tokens) decoded += decoder.push(static_cast<uint32_t>(token));
  return fmt::format("{}  {:?}\n", place, decoded + decoder.finish());
}

/// The tokenizer that made the file: bytes where it does not say, and null where it says another one than lies beside it.
std::unique_ptr<Tokenizer> tokenizer_of(const TokenFile& file) {
  if (file.tokenizer().empty() || file.tokenizer() == TokenizerFiles{}.hash()) return make_tokenizer("bytes");
  try {
    const auto beside = read_tokenizer_files(std::filesystem::absolute(file.path()).parent_path().string());
    return beside.hash() == file.tokenizer() ? make_tokenizer(beside) : nullptr;
  } catch (const Error&) {  // a token file that was moved alone
    return nullptr;
  }
}

}  // namespace

std::string inspect(const InspectOptions& options) {
  std::vector<TokenFile> files;
  for (const std::string& path : expand_shards(options.path)) files.emplace_back(path, options.raw_dtype);
  for (const TokenFile& file : files) file.verify();
  const auto tokenizer = options.tokenizer.empty() ? tokenizer_of(files.front()) : make_tokenizer(options.tokenizer);
  const Statistics statistics = count_tokens(files);
  const bool is_text = tokenizer && static_cast<int64_t>(statistics.counts.size()) <= tokenizer->vocab_size();
  const Tokenizer* const text = is_text ? tokenizer.get() : nullptr;

  std::string result;
  for (const TokenFile& file : files) result += describe_file(file);
  result += describe_counts(statistics, text);
  std::mt19937_64 rng(static_cast<uint64_t>(options.seed));
  for (int64_t i = 0; i < options.samples; ++i) {
    const TokenFile& file = files[rng() % files.size()];
    result += "\n";
    result += describe_sample(file, static_cast<int64_t>(rng() % static_cast<uint64_t>(file.num_tokens())), text);
  }
  return result;
}

}  // namespace scatterlm

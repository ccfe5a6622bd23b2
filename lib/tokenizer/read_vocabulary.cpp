#include "lib/io/json.h"
#include "lib/tokenizer/bpe_builder.h"
#include "lib/tokenizer/read_tokenizer.h"
#include "lib/tokenizer/utf8.h"
#include "lib/util/error.h"

namespace scatterlm {
namespace {

/// Calls visit(line, number) for each line, counted from 1, without its line break.
template <class Visit>
void for_each_line(std::string_view text, Visit&& visit) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    visit(line, number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

BpeModel read_vocabulary_and_merges(std::string_view vocabulary, std::string_view merges, const std::string& vocabulary_path,
                                    const std::string& merges_path) {
  if (valid_utf8_size(merges) < merges.size())
    fail_user("{}: not valid UTF-8 (byte {})", merges_path, valid_utf8_size(merges) + 1);
  BpeBuilder builder(vocabulary_path);
  builder.add_vocabulary(parse_json(vocabulary, vocabulary_path));
  builder.begin_merges(static_cast<size_t>(std::count(merges.begin(), merges.end(), '\n')) + 1);
  for_each_line(merges, [&](std::string_view line, int64_t number) {
    if (line.empty() || (number == 1 && line.starts_with("#version"))) return;
    const size_t space = line.find(' ');
    if (space == line.npos || line.find(' ', space + 1) != line.npos)
      fail_user("{}:{}: not two tokens with a space between them: {}", merges_path, number,
                quote(std::string(line.substr(0, 60))));
    builder.add_merge(line.substr(0, space), line.substr(space + 1));
  });
  // The one special token of GPT-2, which stands in its vocabulary; no merge makes it.
  const std::string eot = "<|endoftext|>";
  if (builder.has(eot)) builder.add_added({.id = builder.number_of(eot), .content = eot, .special = true});
  PreTokenizer pre_tokenizer;
  pre_tokenizer.steps.push_back({SplitPattern(known_pattern("gpt2"), vocabulary_path)});
  return builder.finish(std::move(pre_tokenizer));
}

}  // namespace scatterlm

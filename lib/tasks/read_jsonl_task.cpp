#include "lib/io/json.h"
#include "lib/tasks/read_task.h"
#include "lib/util/error.h"

namespace scatterlm {
namespace {

constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";

class TaskEncoder {
 public:
  explicit TaskEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer), encoder_(tokenizer.encoder()) {}

  /// `where` and `number`, that of the choice, are for messages.
  TaskChoice encode(const std::string& context, const std::string& choice, const std::string& where, size_t number) {
    // One leading space separates it from the context: lm-evaluation-harness does not count it.
    const auto length = choice.size() - choice.starts_with(' ');
    if (length == 0) fail_user("{}: choice {} is empty", where, number);
    const auto own = std::string_view(context).substr(0, context.find_last_not_of(kWhiteSpace) + 1);
    TaskChoice row{.tokens = {}, .length = static_cast<double>(length)};
    if (own.empty()) {
      if (!tokenizer_.eot())
        fail_user("{}: the context is empty, and the tokenizer has no end-of-text token that could stand for it", where);
      row.tokens.push_back(*tokenizer_.eot());
      row.context = 1;
    } else {
      row.context = std::ssize(tokens_of(own));
    }
    const auto whole = tokens_of(context + choice);
    row.tokens.insert(row.tokens.end(), whole.begin(), whole.end());
    if (std::ssize(row.tokens) <= row.context)
      fail_user("{}: the tokenizer makes one token of choice {} and the end of the context; begin the choice with a space",
                where, number);
    return row;
  }

 private:
  std::vector<uint32_t> tokens_of(std::string_view text) {
    std::vector<uint32_t> tokens;
    encoder_->encode({.text = text, .end = text.size()}, tokens);
    return tokens;
  }

  const Tokenizer& tokenizer_;
  std::unique_ptr<TextEncoder> encoder_;
};

TaskExample read_line(std::string_view line, const std::string& where, TaskEncoder& encoder) {
  const auto json = parse_json(line, where);
  const JsonFields fields{json, where};
  const auto context = fields.text("context");
  const auto& choices = fields.list("choices");
  const auto count = std::ssize(choices);
  if (count < 2 || count > kMostChoices)
    fail_user("{}: 'choices' has {} elements, must have from 2 to {}", where, count, kMostChoices);
  TaskExample example{.choices = {}, .answer = fields.count("answer")};
  if (example.answer >= count)
    fail_user("{}: 'answer' is {}, must be from 0 to {}, the number of one of 'choices'", where, example.answer, count - 1);
  for (const auto& choice : choices) {
    if (!choice.is_string()) fail_user("{}: 'choices' holds something else than strings", where);
    example.choices.push_back(encoder.encode(context, choice.get<std::string>(), where, example.choices.size()));
  }
  return example;
}

}  // namespace

std::vector<TaskExample> read_jsonl_task(std::string_view file, const std::string& path, const Tokenizer& tokenizer) {
  TaskEncoder encoder(tokenizer);
  std::vector<TaskExample> examples;
  int64_t number = 0;
  while (!file.empty()) {
    const auto line = file.substr(0, file.find('\n'));
    file.remove_prefix(std::min(file.size(), line.size() + 1));
    ++number;
    if (line.find_first_not_of(kWhiteSpace) == line.npos) continue;
    examples.push_back(read_line(line, fmt::format("{}:{}", path, number), encoder));
  }
  if (examples.empty()) fail_user("{}: holds no example", path);
  return examples;
}

}  // namespace scatterlm

#include "lib/tasks/read_task.h"

#include <filesystem>

#include "lib/util/error.h"
#include "lib/util/escape.h"
#include "lib/util/file.h"
#include "lib/util/hash.h"
#include "lib/util/log/log.h"

namespace scatterlm {
namespace {

namespace fs = std::filesystem;

/// The tokenizer of a run, and what is known about it.
struct RunTokenizer {
  const std::string& name;  ///< data.tokenizer
  std::unique_ptr<Tokenizer> made;
  bool is_bytes;
  int64_t eot_token;  ///< data.eot_token

  int64_t size() const { return made->vocab_size(); }
  /// `bytes` is the default: a model that learned from token files of others need not name their tokenizer.
  bool is_other() const { return is_bytes && eot_token >= 0 && eot_token != made->eot(); }
  bool is_gpt2() const {
    return size() == kGpt2Tokens && made->bytes_of(464) == "The" && made->bytes_of(50256) == "<|endoftext|>";
  }
};

/// TensorBoard reads no file with other names.
std::string valid_utf8(const std::string& name) {
  const ByteTokenizer bytes;
  TokenDecoder decoder = bytes.decoder();
  std::string text;
  for (const char c : name) text += decoder.push(static_cast<unsigned char>(c));
  return text + decoder.finish();
}

void require_gpt2(const std::string& path, const RunTokenizer& tokenizer, int64_t vocab_size) {
  if (vocab_size < kGpt2Tokens)
    fail_user("{}: holds tokens of GPT-2, which has {}, but 'model.vocab_size: {}'; a task as JSON lines fits any tokenizer",
              path, kGpt2Tokens, vocab_size);
  const bool of_bytes = tokenizer.is_bytes && tokenizer.eot_token >= 0 && !tokenizer.is_other();
  if (of_bytes || (!tokenizer.is_bytes && !tokenizer.is_gpt2()))
    fail_user(
        "{}: holds tokens of GPT-2, but 'data.tokenizer: {}' is another one, of {} tokens; a task as JSON lines fits any tokenizer",
        path, tokenizer.name, tokenizer.size());
}

void require_text(const std::string& path, std::string_view file, const RunTokenizer& tokenizer) {
  if (const size_t first = file.find_first_not_of(" \t\r\n"); first == file.npos || file[first] != '{')
    fail_user("{}: is neither a file of llm.c's evaluation format nor one of JSON lines with context, choices and answer",
              path);
  if (tokenizer.is_other())
    fail_user(
        "{}: is text, but 'data.eot_token: {}' is not the end of text of 'data.tokenizer: {}', which is {}: the model learned the "
        "tokens of another tokenizer; name that one, or give a task of its tokens",
        path, tokenizer.eot_token, tokenizer.name, *tokenizer.made->eot());
}

/// Leaves out the beginning of contexts that are too long. The last token of a row is only predicted.
void fit_to_model(Task& task, const Config& config) {
  const int64_t length = config.train.sequence_length;
  int64_t rows = 0, shortened = 0;
  for (size_t i = 0; i < task.examples.size(); ++i) {
    for (TaskChoice& row : task.examples[i].choices) {
      ++rows;
      if (row.tokens.front() >= config.model.vocab_size)  // of text, only what stands for an empty context can be
        fail_user(
            "{}: example {} has no context, and 'model.vocab_size: {}' has no end-of-text token {} that could stand for it",
            task.path, i, config.model.vocab_size, row.tokens.front());
      const int64_t excess = std::ssize(row.tokens) - (length + 1);
      if (excess <= 0) continue;
      if (excess >= row.context)
        fail_user("{}: example {} has a choice of {} tokens, but the model reads at most {} (train.sequence_length)", task.path,
                  i, std::ssize(row.tokens) - row.context, length);
      row.tokens.erase(row.tokens.begin(), row.tokens.begin() + excess);
      row.context -= excess;
      ++shortened;
    }
  }
  if (shortened > 0)
    log_warning(
        fmt::format("{}: {} of {} choices have more tokens with their context than 'train.sequence_length: {}'; the beginning "
                    "of the context is left out",
                    task.path, shortened, rows, length));
}

Task read_task(const std::string& path, const Config& config, const RunTokenizer& tokenizer) {
  const std::string file = read_file(path);
  Task task{.name = escape_control(valid_utf8(fs::path(path).stem().string())), .path = path, .xxh3 = hash_hex(file)};
  if (is_llmc_task(file)) {
    require_gpt2(path, tokenizer, config.model.vocab_size);
    task.examples = read_llmc_task(file, path);
    task.length_unit = "tokens";
  } else {
    require_text(path, file, tokenizer);
    task.examples = read_jsonl_task(file, path, *tokenizer.made);
    task.length_unit = "bytes";
  }
  fit_to_model(task, config);
  return task;
}

}  // namespace

std::vector<Task> read_tasks(const std::vector<std::string>& paths, const Config& config, const TokenizerFiles& tokenizer) {
  if (paths.empty()) return {};
  const RunTokenizer run{config.data.tokenizer, make_tokenizer(tokenizer), tokenizer.content.empty(), config.data.eot_token};
  std::vector<Task> tasks;
  for (const std::string& path : paths) {
    Task task = read_task(path, config, run);
    for (const Task& other : tasks)
      if (other.name == task.name)
        fail_user("{}: its results would have the same name '{}' as those of {}; rename one of the files", path, task.name,
                  other.path);
    tasks.push_back(std::move(task));
  }
  return tasks;
}

std::string task_identity(const std::vector<Task>& tasks) {
  std::string text;
  for (const Task& task : tasks)
    text +=
        fmt::format("{} ({} examples, hash {})\n", fs::path(task.path).filename().string(), task.examples.size(), task.xxh3);
  return text;
}

}  // namespace scatterlm

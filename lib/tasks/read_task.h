// Files of multiple-choice tasks; docs/formats.md describes them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "lib/config/config.h"
#include "lib/tasks/task.h"
#include "lib/tokenizer/tokenizer_files.h"

namespace scatterlm {

/// Reads files of both formats for a model of this configuration, whose `tokenizer` encodes text. No row has more than
/// train.sequence_length + 1 tokens, the last of which is only predicted: longer ones lose the beginning of their context, with
/// one warning per file. Throws Error naming file, place and value for a file that is damaged or does not fit the model or its
/// tokenizer, and for two files of the same name.
std::vector<Task> read_tasks(const std::vector<std::string>& paths, const Config& config, const TokenizerFiles& tokenizer);

/// "hellaswag_val.bin (10042 examples, hash 0123456789abcdef)", one a line: what must be the same on every rank.
std::string task_identity(const std::vector<Task>& tasks);

/// llm.c's evaluation format (https://github.com/karpathy/llm.c, dev/data/data_common.py), with GPT-2's tokens. `path` is for
/// messages, which give the offset of what is damaged.
bool is_llmc_task(std::string_view file);
std::vector<TaskExample> read_llmc_task(std::string_view file, const std::string& path);
inline constexpr int64_t kGpt2Tokens = 50257;

/// JSON lines {"context": "...", "choices": ["...", ...], "answer": 0}. The choice begins behind the tokens of the context
/// alone, as in lm-evaluation-harness (TemplateLM._encode_pair): white space that ends the context counts as part of the
/// choice, and an empty context is the tokenizer's end-of-text token.
std::vector<TaskExample> read_jsonl_task(std::string_view file, const std::string& path, const Tokenizer& tokenizer);

}  // namespace scatterlm

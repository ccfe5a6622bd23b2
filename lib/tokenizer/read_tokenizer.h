// Readers of the files that hold byte-level BPE. Each throws Error "WHERE: ..." naming the key or line and the value for what
// is damaged, and for what this program does not do.
#pragma once
#include <string>
#include <string_view>

#include "lib/tokenizer/bpe_tokenizer.h"

namespace scatterlm {

/// Hugging Face's tokenizer.json. The post-processor, which adds tokens at the beginning of a text, and the decoder have no
/// effect.
BpeModel read_tokenizer_json(std::string_view text, const std::string& where);

/// GPT-2's two files; `vocabulary` and `merges` are their texts.
BpeModel read_vocabulary_and_merges(std::string_view vocabulary, std::string_view merges, const std::string& vocabulary_path,
                                    const std::string& merges_path);

/// tiktoken's list of tokens in base64 with their ranks. The name of the file says which split pattern and special tokens
/// belong to it: it holds cl100k_base, o200k_base, r50k_base, p50k_base, llama3 or qwen.
BpeModel read_tiktoken(std::string_view text, const std::string& path);

}  // namespace scatterlm

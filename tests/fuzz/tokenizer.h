#pragma once
#include "lib/tokenizer/bpe_tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace scatterlm::fuzz {

/// Encodes texts with what a reader has accepted. Without normalization and steps that drop or add text the bytes come back.
inline void use_tokenizer(BpeModel model) {
  bool exact = !model.nfc && !model.pre_tokenizer.add_prefix_space;
  for (const auto& step : model.pre_tokenizer.steps) exact = exact && !step.drop_between;
  for (const auto& added : model.added) exact = exact && !added.strip_left && !added.strip_right && !added.normalized;
  const BpeTokenizer tokenizer(std::move(model));
  for (const std::string_view text : {"hello  hel\n\n12 'll\xc3\xa9 ", "a\xff<|e|> e\xcc\x81\xe2\x82", ""}) {
    const auto tokens = tokenizer.encode(text);
    std::string bytes;
    for (const uint32_t token : tokens) {
      if (token >= tokenizer.vocab_size()) std::abort();
      bytes += tokenizer.bytes_of(token);
    }
    if (exact && bytes != text) std::abort();
    tokenizer.encode(text, SpecialTokens::kRecognised);
  }
}

}  // namespace scatterlm::fuzz

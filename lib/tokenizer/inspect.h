#pragma once
#include <cstdint>
#include <string>

#include "lib/config/config.h"

namespace scatterlm {

struct InspectOptions {
  std::string path;  ///< token file, shard pattern or Megatron prefix
  TokenWidth raw_dtype = TokenWidth::kAuto;
  int64_t samples = 3;
  int64_t seed = 0;
  std::string tokenizer;  ///< empty: the one that made the first file, if it lies beside it
};

/// What is in token files, as text to print: format, tokens and documents of each file, the most common tokens, samples.
/// Samples are decoded where every token is one of the tokenizer's, else given as numbers.
std::string inspect(const InspectOptions& options);

}  // namespace scatterlm

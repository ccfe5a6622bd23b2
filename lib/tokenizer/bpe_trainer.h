// Learns the merges of byte-level BPE from how often pieces of text occur.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lib/tokenizer/piece_counts.h"

namespace scatterlm {

struct LearnedMerges {
  std::vector<std::pair<uint32_t, uint32_t>> pairs;  ///< in the order of their ranks
  std::vector<std::string> token_bytes;              ///< by token: 256 bytes in GPT-2's order, then the result of each merge
};

/// Merges the most frequent pair of neighbouring tokens until there are `vocab_size` tokens or no pair occurs min_count times;
/// of equally frequent ones that of the lowest numbers. The same as Hugging Face's trainer from the same pieces.
LearnedMerges learn_merges(const PieceCounts& pieces, int64_t vocab_size, int64_t min_count);

/// Throws Error naming the first special token that is empty, no UTF-8, given twice, or might be learned as well: only what the
/// pattern divides into several pieces never becomes one token.
void check_special_tokens(const std::vector<std::string>& special, std::string_view pattern);

/// The text of a tokenizer.json: the learned tokens, then the special ones; text is split by `pattern`.
std::string dump_tokenizer_json(const LearnedMerges& learned, const std::vector<std::string>& special,
                                std::string_view pattern);

}  // namespace scatterlm

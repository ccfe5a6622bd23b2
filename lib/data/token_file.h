// Token files of other projects behind one interface.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/config/config.h"
#include "lib/data/llmc_format.h"
#include "lib/data/megatron_index.h"
#include "lib/data/token_type.h"
#include "lib/util/mapped_file.h"

namespace scatterlm {

enum class TokenFormat { kLlmc, kMegatron, kNpy, kRaw };

/// "llm.c", "Megatron", "npy" or "raw".
const char* format_name(TokenFormat format);
/// "uint16" and so on.
std::string type_name(TokenType type);

/// A stream of tokens in a mapped file.
class TokenFile {
 public:
  /// Detects, in this order: Megatron (PREFIX, PREFIX.bin or PREFIX.idx), llm.c .bin, npy, and bare tokens of width raw_dtype.
  /// Checks the header and sizes. Throws Error naming the file, what is wrong and the way out.
  TokenFile(const std::string& path, TokenWidth raw_dtype);

  const std::string& path() const { return path_; }
  TokenFormat format() const { return format_; }
  TokenType type() const { return type_; }
  int64_t num_tokens() const { return num_tokens_; }

  /// Tokens begin .. begin+count-1. Throws Error for one that is not in [0, vocab_size).
  void read(int64_t begin, int64_t count, int64_t vocab_size, int64_t* out) const;
  /// The same check on the first `count` tokens, on all threads.
  void check(int64_t count, int64_t vocab_size) const;
  /// True if no value of the token type can fail that check.
  bool fits(int64_t vocab_size) const;

  /// Throws Error if the header holds a checksum and the tokens have another one. Reads all of them.
  void verify() const;
  /// XXH3 of the tokens in 16 blocks of 4 KiB at equal distances, the first and the last ones among them; of all tokens where
  /// they are no more than that. With documents also of their whole index, on which the masks of attention depend.
  std::string sampled_hash() const;

  /// Hash of the tokenizer that made the tokens (TokenizerFiles::hash), where the header holds it, else empty.
  std::string_view tokenizer() const { return tokenizer_; }

  /// Documents, where the file has an index of them.
  const std::optional<MegatronIndex>& documents() const { return index_; }

 private:
  void detect(const std::string& path, TokenWidth raw_dtype);
  void open_megatron(const std::string& prefix);
  void open_llmc(const LlmcFormat& format);
  void open_npy();
  void open_raw(TokenWidth raw_dtype);
  void set_tokens(int64_t header_bytes, int64_t num_tokens);
  std::optional<int64_t> find_outside(int64_t begin, int64_t end, int64_t vocab_size) const;
  [[noreturn]] void fail_outside(int64_t position, int64_t vocab_size) const;

  std::string path_;  ///< of the tokens
  MappedFile file_;
  std::optional<MegatronIndex> index_;
  TokenFormat format_ = TokenFormat::kRaw;
  TokenType type_ = TokenType::kU16;
  const std::byte* tokens_ = nullptr;
  int64_t num_tokens_ = 0;
  std::string_view checksum_, tokenizer_;  ///< as in the header; empty where it has none
};

/// The paths behind one `path` of a configuration: itself, or the matches of a shard pattern (`train_*.bin`) in bytewise order.
/// Throws Error if nothing matches.
std::vector<std::string> expand_shards(const std::string& pattern);

}  // namespace scatterlm

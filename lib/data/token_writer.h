#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/util/hash.h"

namespace scatterlm {

/// Writes an llm.c token file: uint16 (the GPT-2 format) where the vocabulary fits, else uint32 (the Llama-3 format).
/// The header holds a checksum and, unless it is empty, the tokenizer's hash (llmc_format.h). Everything goes to
/// PATH.RANDOM.tmp; the file appears complete or not at all. Failures throw Error "PATH: cannot write: REASON".
class TokenWriter {
 public:
  static constexpr int64_t kMaxTokens = INT32_MAX;  ///< the header counts in an int32

  TokenWriter(std::string path, int64_t vocab_size, std::string tokenizer = "");
  ~TokenWriter();  ///< removes the temporary file unless published
  TokenWriter(TokenWriter&& other) noexcept;
  TokenWriter& operator=(TokenWriter&&) = delete;

  void append(std::span<const uint32_t> tokens);
  void finish();  ///< writes the header, last; nothing can be appended any more
  /// After finish(): renames to `path`, PATH or another name in its folder.
  void publish(const std::string& path);

  int64_t num_tokens() const { return num_tokens_; }

 private:
  void flush();
  void write_at(int64_t offset, const void* data, size_t size);
  [[noreturn]] void fail_to_write() const;

  std::string path_, temporary_, tokenizer_;
  bool wide_;
  bool published_ = false;
  int fd_ = -1;
  int64_t num_tokens_ = 0;
  int64_t end_;               ///< of what is in the file
  std::vector<char> buffer_;  ///< tokens behind that
  Hash hash_;                 ///< of the tokens before the buffer
};

}  // namespace scatterlm

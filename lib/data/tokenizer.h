// Text to tokens and back.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace scatterlm {

class TokenDecoder;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// No end-of-text token is added, and none is recognised in the text.
  virtual std::vector<uint32_t> encode(std::string_view text) const = 0;
  /// Largest n <= limit where encode(text) is encode of the first n bytes and encode of the rest, so that a huge document can
  /// be encoded in pieces; 0 < limit < size of the text.
  virtual size_t split(std::string_view text, size_t limit) const = 0;
  /// Bytes of one token; empty for end-of-text and for numbers that are no token.
  virtual std::string bytes_of(uint32_t token) const = 0;
  /// Tokens are below this, end-of-text included.
  virtual int64_t vocab_size() const = 0;
  virtual uint32_t eot() const = 0;

  TokenDecoder decoder() const;
};

/// Tokens that arrive one by one, as UTF-8: an incomplete character is held back, what is no UTF-8 becomes U+FFFD.
class TokenDecoder {
 public:
  /// The tokenizer must outlive the decoder.
  explicit TokenDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  std::string push(uint32_t token);
  std::string finish();  ///< what was held back

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;  ///< the beginning of one character
};

/// 256 bytes and end-of-text, 256.
class ByteTokenizer : public Tokenizer {
 public:
  std::vector<uint32_t> encode(std::string_view text) const override;
  size_t split(std::string_view, size_t limit) const override { return limit; }
  std::string bytes_of(uint32_t token) const override;
  int64_t vocab_size() const override { return 257; }
  uint32_t eot() const override { return 256; }
};

/// By the value of data.tokenizer or --tokenizer: "bytes". Throws Error for another.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

}  // namespace scatterlm

// Text to tokens and back.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace scatterlm {

class TokenDecoder;

/// What becomes of the names of special tokens in a text, such as "<|endoftext|>".
enum class SpecialTokens { kAsText, kRecognised };

/// The beginning of a text, or of what is left of one.
struct TextPart {
  std::string_view text;  ///< the part, and what follows it as far as it is known
  size_t end;             ///< of the part
  bool starts = true;     ///< the part begins where the whole text does
  bool ends = true;       ///< `text` ends where the whole text does
};

/// Text to tokens. Keeps what it has learned about words from call to call; one per thread.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  /// Appends the tokens of a part, which begins where a token of the whole text does. Returns false, and appends nothing,
  /// unless it is sure that a token of the whole text ends where the part does; it always is where the whole text ends.
  virtual bool encode(const TextPart& part, std::vector<uint32_t>& tokens) = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// The tokenizer must outlive it. No end-of-text token is added.
  virtual std::unique_ptr<TextEncoder> encoder(SpecialTokens special = SpecialTokens::kAsText) const = 0;
  /// The last likely place up to `limit` to cut a huge text, so that its parts can be encoded on several threads; the encoder
  /// then says whether it was one. 0 where there is none; 0 < limit < size of the text.
  virtual size_t find_cut(std::string_view text, size_t limit) const = 0;
  /// Bytes of one token; the name of a special one; empty for numbers that are no token.
  virtual std::string bytes_of(uint32_t token) const = 0;
  /// Whether it marks a place, such as the end of a document, and stands for no text.
  virtual bool is_special(uint32_t token) const = 0;
  /// Tokens are below this.
  virtual int64_t vocab_size() const = 0;
  /// The token that ends a document, if there is one.
  virtual std::optional<uint32_t> eot() const = 0;
  /// The number of a token, by its bytes or name.
  virtual std::optional<uint32_t> find_token(std::string_view bytes) const = 0;

  std::vector<uint32_t> encode(std::string_view text, SpecialTokens special = SpecialTokens::kAsText) const;
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

/// 256 bytes and end-of-text, 256, which has no text.
class ByteTokenizer : public Tokenizer {
 public:
  std::unique_ptr<TextEncoder> encoder(SpecialTokens special = SpecialTokens::kAsText) const override;
  size_t find_cut(std::string_view, size_t limit) const override { return limit; }
  std::string bytes_of(uint32_t token) const override;
  bool is_special(uint32_t token) const override { return token == 256; }
  int64_t vocab_size() const override { return 257; }
  std::optional<uint32_t> eot() const override { return 256; }
  std::optional<uint32_t> find_token(std::string_view bytes) const override;
};

}  // namespace scatterlm

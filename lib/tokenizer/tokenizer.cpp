#include "lib/tokenizer/tokenizer.h"

#include "lib/tokenizer/utf8.h"

namespace scatterlm {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

class ByteEncoder : public TextEncoder {
 public:
  bool encode(const TextPart& part, std::vector<uint32_t>& tokens) override {
    const auto* bytes = reinterpret_cast<const uint8_t*>(part.text.data());
    tokens.insert(tokens.end(), bytes, bytes + part.end);
    return true;
  }
};

}  // namespace

std::vector<uint32_t> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  std::vector<uint32_t> tokens;
  encoder(special)->encode({.text = text, .end = text.size()}, tokens);
  return tokens;
}

TokenDecoder Tokenizer::decoder() const { return TokenDecoder(*this); }

std::string TokenDecoder::push(uint32_t token) {
  pending_ += tokenizer_->bytes_of(token);
  std::string text;
  size_t at = 0;
  while (at < pending_.size()) {
    const Utf8Piece piece = first_utf8_piece(std::string_view(pending_).substr(at));
    if (piece.kind == Utf8Piece::kIncomplete) break;
    text += piece.kind == Utf8Piece::kCharacter ? std::string_view(pending_).substr(at, piece.size) : kReplacement;
    at += piece.size;
  }
  pending_.erase(0, at);
  return text;
}

std::string TokenDecoder::finish() {
  const bool incomplete = !pending_.empty();
  pending_.clear();
  return incomplete ? std::string(kReplacement) : "";
}

std::unique_ptr<TextEncoder> ByteTokenizer::encoder(SpecialTokens) const { return std::make_unique<ByteEncoder>(); }

std::string ByteTokenizer::bytes_of(uint32_t token) const {
  return token < 256 ? std::string(1, static_cast<char>(token)) : "";
}

std::optional<uint32_t> ByteTokenizer::find_token(std::string_view bytes) const {
  if (bytes.size() != 1) return std::nullopt;
  return static_cast<uint8_t>(bytes[0]);
}

}  // namespace scatterlm

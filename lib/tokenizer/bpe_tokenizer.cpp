#include "lib/tokenizer/bpe_tokenizer.h"

#include "lib/tokenizer/bpe_encoder.h"

namespace scatterlm {
namespace {

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

BpeTokenizer::BpeTokenizer(BpeModel model) : model_(std::move(model)) {
  std::vector<bool> is_added(model_.token_bytes.size(), false);
  is_special_ = is_added;
  for (const AddedToken& token : model_.added) {
    is_added[token.id] = true;
    is_special_[token.id] = token.special;
  }
  tokens_.reserve(model_.token_bytes.size());
  for (size_t id = 0; id < model_.token_bytes.size(); ++id) {
    const std::string& bytes = model_.token_bytes[id];
    if (!bytes.empty() && !is_added[id]) tokens_.emplace(bytes, static_cast<uint32_t>(id));
  }
  cuts_[kLineBegin] = splits_at("ab cd.\nef gh", 7);
  cuts_[kWordBegin] = splits_at("ab cd ef gh", 5);
  cuts_[kNumberBegin] = splits_at("ab cd 12 ef", 6);
}

std::unique_ptr<TextEncoder> BpeTokenizer::encoder(SpecialTokens special) const {
  return std::make_unique<BpeEncoder>(model_, tokens_, special);
}

bool BpeTokenizer::splits_at(std::string_view text, size_t place) const {
  PieceFinder finder(model_.pre_tokenizer);
  return finder.find(text, place, PieceFinder::End::kCut, [](std::string_view) {});
}

bool BpeTokenizer::is_cut(std::string_view text, size_t place) const {
  const char before = text[place - 1], after = text[place];
  if (before == '\n')
    return cuts_[is_ascii_digit(after) ? kNumberBegin : kLineBegin] && (is_ascii_digit(after) || is_ascii_letter(after));
  if (after == ' ')
    return cuts_[kWordBegin] && is_ascii_letter(before) && place + 1 < text.size() && is_ascii_letter(text[place + 1]);
  return before == ' ' && cuts_[kNumberBegin] && is_ascii_digit(after);
}

size_t BpeTokenizer::find_cut(std::string_view text, size_t limit) const {
  for (size_t place = limit; place > 0; --place)
    if (is_cut(text, place)) return place;
  return 0;
}

std::string BpeTokenizer::bytes_of(uint32_t token) const {
  return token < model_.token_bytes.size() ? model_.token_bytes[token] : "";
}

bool BpeTokenizer::is_special(uint32_t token) const { return token < is_special_.size() && is_special_[token]; }

std::optional<uint32_t> BpeTokenizer::find_token(std::string_view bytes) const {
  for (const AddedToken& token : model_.added)
    if (token.content == bytes) return token.id;
  const auto found = tokens_.find(bytes);
  if (found == tokens_.end()) return std::nullopt;
  return found->second;
}

}  // namespace scatterlm

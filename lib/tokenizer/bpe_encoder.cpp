#include "lib/tokenizer/bpe_encoder.h"

#include <algorithm>
#include <cstring>

#include "lib/tokenizer/nfc.h"
#include "lib/tokenizer/utf8.h"

namespace scatterlm {
namespace {

constexpr size_t kLookAhead = 4096;        // bytes behind a part that may decide whether a piece ends with it
constexpr size_t kLongestPiece = 4 << 20;  // a longer one is cut: bounds the memory for its merges

std::vector<AddedToken> select_added(const std::vector<AddedToken>& tokens, bool normalized) {
  std::vector<AddedToken> selected;
  std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(selected),
               [=](const AddedToken& token) { return token.normalized == normalized; });
  return selected;
}

}  // namespace

size_t PieceCache::slot_of(std::string_view piece) {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;
  uint64_t hash = piece.size() * kFactor;
  size_t at = 0;
  for (; at + 8 <= piece.size(); at += 8) {
    uint64_t eight;
    std::memcpy(&eight, piece.data() + at, 8);
    hash = (hash ^ eight) * kFactor;
    hash ^= hash >> 32;
  }
  uint64_t rest = 0;
  std::memcpy(&rest, piece.data() + at, piece.size() - at);
  return ((hash ^ rest) * kFactor) >> (64 - kSlotBits);
}

BpeEncoder::BpeEncoder(const BpeModel& model, const std::unordered_map<std::string_view, uint32_t>& whole_pieces,
                       SpecialTokens special)
    : model_(model),
      whole_pieces_(whole_pieces),
      added_(select_added(model.added, false), special),
      added_normalized_(select_added(model.added, true), special),
      pieces_(model.pre_tokenizer),
      merger_(model.merges) {}

bool BpeEncoder::encode(const TextPart& part, std::vector<uint32_t>& tokens) {
  const size_t before = tokens.size();
  tokens_ = &tokens;
  at_start_ = part.starts;
  const size_t known = part.end + kLookAhead + std::max(added_.longest(), added_normalized_.longest());
  const std::string_view text = part.text.substr(0, known);
  const bool ends = part.ends && text.size() == part.text.size();
  // What follows would have to see text before its start: such a document is cut only by force.
  if (!part.ends && model_.pre_tokenizer.looks_behind()) return false;
  if (part.end < part.text.size() && model_.pre_tokenizer.add_prefix_space) return false;
  const bool whole = added_.split(
      text, part.end, ends ? End::kReal : End::kCut,
      [&](std::string_view segment, size_t stop, End end) { return encode_bytes(segment, stop, end); },
      [&](uint32_t id) {
        tokens_->push_back(id);
        at_start_ = true;
      });
  if (!whole) tokens.resize(before);
  return whole;
}

/// Runs of valid UTF-8 by the pattern; a run of other bytes is one piece.
bool BpeEncoder::encode_bytes(std::string_view text, size_t stop, End end) {
  size_t at = 0;
  while (at < stop) {
    const size_t valid = valid_utf8_size(text.substr(at));
    if (valid > 0) {
      const bool cut_off = end == End::kCut && text.size() - at - valid < 4;  // perhaps in the middle of a character
      if (!encode_valid(text.substr(at, valid), std::min(valid, stop - at), cut_off ? End::kCut : End::kReal)) return false;
      at += valid;
      if (at >= stop) break;
    }
    size_t run_end = at;
    while (run_end < text.size()) {
      const Utf8Piece piece = first_utf8_piece(text.substr(run_end));
      if (piece.kind == Utf8Piece::kCharacter) break;
      run_end += piece.size;
    }
    if (run_end > stop || (run_end == text.size() && end == End::kCut)) return false;
    encode_piece(text.substr(at, run_end - at));
    at = run_end;
  }
  return true;
}

bool BpeEncoder::encode_valid(std::string_view text, size_t stop, End end) {
  if (model_.nfc && !is_surely_nfc(text)) {
    const std::string_view rest = text.substr(stop);
    if (!rest.empty() && static_cast<uint8_t>(rest[0]) >= 0x80) return false;
    normalized_.clear();
    append_nfc(text.substr(0, stop), normalized_);
    stop = normalized_.size();
    append_nfc(rest, normalized_);
    text = normalized_;
  }
  return added_normalized_.split(
      text, stop, end,
      [&](std::string_view segment, size_t segment_stop, End segment_end) {
        return encode_normalized(segment, segment_stop, segment_end);
      },
      [&](uint32_t id) {
        tokens_->push_back(id);
        at_start_ = true;
      });
}

bool BpeEncoder::encode_normalized(std::string_view text, size_t stop, End end) {
  if (model_.pre_tokenizer.add_prefix_space && at_start_ && text[0] != ' ') {
    prefixed_ = " ";
    prefixed_ += text;
    text = prefixed_;
    ++stop;
  }
  at_start_ = false;
  return pieces_.find(text, stop, end, [&](std::string_view piece) { encode_piece(piece); });
}

void BpeEncoder::encode_piece(std::string_view piece) {
  if (PieceCache::fits(piece)) {
    cache_.append(piece, *tokens_, [&](std::vector<uint32_t>& tokens) { merge_piece(piece, tokens); });
    return;
  }
  while (piece.size() > kLongestPiece) {
    merge_piece(piece.substr(0, kLongestPiece), *tokens_);
    piece.remove_prefix(kLongestPiece);
  }
  merge_piece(piece, *tokens_);
}

void BpeEncoder::merge_piece(std::string_view piece, std::vector<uint32_t>& tokens) {
  if (model_.whole_pieces_first) {
    const auto found = whole_pieces_.find(piece);
    if (found != whole_pieces_.end()) {
      tokens.push_back(found->second);
      return;
    }
  }
  merging_.clear();
  for (const char byte : piece) merging_.push_back(model_.byte_tokens[static_cast<uint8_t>(byte)]);
  merger_.merge(merging_);
  tokens.insert(tokens.end(), merging_.begin(), merging_.end());
}

}  // namespace scatterlm

#include "lib/tokenizer/text_blocks.h"

#include <algorithm>

#include "lib/io/json.h"
#include "lib/tokenizer/utf8.h"
#include "lib/util/error.h"

namespace scatterlm {
namespace {

constexpr size_t kBlockBytes = 1 << 20;
constexpr size_t kLookAheadBytes = 16 << 10;
constexpr size_t kMostBlockBytes = 16 << 20;  // of a text without a likely place to cut: it is cut between two characters
constexpr size_t kMostLineBytes = 64 << 20;   // of JSON

size_t before_character(std::string_view text, size_t at) {
  const size_t least = at - std::min<size_t>(at, 3);
  size_t begin = at;
  while (begin > least && !begins_character(text[begin])) --begin;
  return begins_character(text[begin]) && begin > 0 ? begin : at;
}

}  // namespace

void for_each_json_text(const TextBlock& block, const std::string& field, const std::function<void(std::string_view)>& visit) {
  std::string_view rest = block.text;
  for (int64_t number = block.first_line; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string where = fmt::format("{}:{}", block.path, number);
    const auto value = parse_json(line, where);
    visit(JsonFields{value, where}.text(field.c_str()));
  }
}

bool is_json_lines(const std::string& path) {
  std::string_view name = path;
  bool compressed = false;
  for (const std::string_view suffix : {".gz", ".zst"}) {
    if (!name.ends_with(suffix)) continue;
    name.remove_suffix(suffix.size());
    compressed = true;
  }
  return name.ends_with(".jsonl") || name.ends_with(".ndjson") || (compressed && name.ends_with(".json"));
}

TextBlockReader::TextBlockReader(Options options, const Tokenizer& tokenizer)
    : options_(std::move(options)), tokenizer_(tokenizer) {}

void TextBlockReader::open_next() {
  if (source_) closed_bytes_ += source_->file_bytes();
  const std::string& path = options_.paths[num_opened_++];
  source_.emplace(path);
  lines_ = options_.lines || is_json_lines(path);
  starts_ = true;
  line_ = 1;
}

std::optional<TextBlock> TextBlockReader::next() {
  if (!source_ || (source_->at_end() && buffer_.empty() && !starts_)) {
    if (num_opened_ == options_.paths.size()) return std::nullopt;
    open_next();
  }
  TextBlock block = lines_ ? next_lines() : next_text();
  block.path = options_.paths[num_opened_ - 1];
  starts_ = false;
  return block;
}

TextBlock TextBlockReader::next_text() {
  TextBlock block;
  block.starts = starts_;
  for (size_t size = kBlockBytes; block.end == 0; size *= 2) {
    if (buffer_.size() < size + kLookAheadBytes) source_->read(buffer_, size + kLookAheadBytes - buffer_.size());
    if (source_->at_end()) {
      block.text = std::move(buffer_);
      block.end = block.text.size();
      buffer_.clear();
      return block;
    }
    block.end = tokenizer_.find_cut(buffer_, size);
    block.ends = block.end == 0 && size >= kMostBlockBytes;
    if (block.ends) block.end = before_character(buffer_, size);
  }
  block.ends_document = false;
  block.text = buffer_.substr(0, block.end + (block.ends ? 0 : kLookAheadBytes));
  buffer_.erase(0, block.end);
  return block;
}

TextBlock TextBlockReader::next_lines() {
  TextBlock block{.kind = TextBlock::kLines, .first_line = line_};
  for (size_t size = kBlockBytes; block.end == 0; size *= 2) {
    if (buffer_.size() < size) source_->read(buffer_, size - buffer_.size());
    block.end = source_->at_end() ? buffer_.size() : buffer_.rfind('\n') + 1;
    if (source_->at_end()) break;
    if (block.end == 0 && size >= kMostLineBytes)
      fail_user("{}:{}: the line is longer than {} MiB", options_.paths[num_opened_ - 1], line_, kMostLineBytes >> 20);
  }
  block.text = buffer_.substr(0, block.end);
  buffer_.erase(0, block.end);
  line_ += std::count(block.text.begin(), block.text.end(), '\n');
  return block;
}

int64_t TextBlockReader::file_bytes() const { return closed_bytes_ + (source_ ? source_->file_bytes() : 0); }

}  // namespace scatterlm

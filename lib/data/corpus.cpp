#include "lib/data/corpus.h"

#include <ATen/ATen.h>

#include <filesystem>

namespace scatterlm {
namespace {

constexpr int64_t kCheckedBytes = int64_t{8} << 30;

/// Smallest document of the index that begins after `position`.
int64_t next_document(const MegatronIndex& index, int64_t position) {
  int64_t low = 0;
  int64_t high = index.num_documents();
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (index.document_begin(middle) > position) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

void number_by_index(const MegatronIndex& index, int64_t begin, int64_t length, int32_t* document) {
  int64_t next = next_document(index, begin);
  int32_t number = 0;
  for (int64_t i = 0; i < length; ++i) {
    const int64_t known = next;
    // A loop, as an empty document begins where its successor does.
    while (next < index.num_documents() && index.document_begin(next) == begin + i) ++next;
    number += next > known;
    document[i] = number;
  }
}

/// The end-of-text token belongs to the document it ends.
void number_by_token(const int64_t* tokens, int64_t length, int64_t eot_token, int32_t* document) {
  int32_t number = 0;
  for (int64_t i = 0; i < length; ++i) {
    document[i] = number;
    number += tokens[i] == eot_token;
  }
}

}  // namespace

int64_t Source::num_tokens() const {
  int64_t sum = 0;
  for (const TokenFile& file : files) sum += file.num_tokens();
  return sum;
}

Corpus::Corpus(const std::vector<BlendEntry>& entries, const char* key, const DataConfig& data, int64_t vocab_size)
    : vocab_size_(vocab_size), eot_token_(data.eot_token), number_documents_(data.intra_document_masking) {
  for (const BlendEntry& entry : entries) {
    if (entry.weight == 0) continue;
    Source source{.path = entry.path, .weight = entry.weight, .files = {}};
    for (const std::string& path : expand_shards(entry.path)) {
      source.files.emplace_back(path, data.raw_dtype);
      check(source.files.back());
    }
    sources_.push_back(std::move(source));
  }
  if (sources_.empty()) fail_user("{}: names no file with a weight above 0", key);
}

void Corpus::check(const TokenFile& file) {
  if (number_documents_ && eot_token_ < 0 && !file.documents())
    fail_user("{}: has no document index, which data.intra_document_masking needs: set data.eot_token", file.path());
  if (file.fits(vocab_size_)) return;
  const int64_t width = width_of(file.type());
  const int64_t count = std::min(file.num_tokens(), (kCheckedBytes - checked_bytes_) / width);
  file.check(count, vocab_size_);
  if (count == file.num_tokens()) file.verify();  // in memory now
  checked_bytes_ += count * width;
  unchecked_bytes_ += (file.num_tokens() - count) * width;
}

int64_t Corpus::num_files() const {
  int64_t sum = 0;
  for (const Source& source : sources_) sum += static_cast<int64_t>(source.files.size());
  return sum;
}

int64_t Corpus::num_tokens() const {
  int64_t sum = 0;
  for (const Source& source : sources_) sum += source.num_tokens();
  return sum;
}

std::vector<FileFingerprint> Corpus::fingerprint() const {
  std::vector<FileFingerprint> files;
  for (size_t source = 0; source < sources_.size(); ++source) {
    for (const TokenFile& file : sources_[source].files) {
      files.push_back({.name = std::filesystem::path(file.path()).filename().string(),
                       .source = static_cast<int64_t>(source),
                       .tokens = file.num_tokens(),
                       .xxh3 = file.sampled_hash(),
                       .tokenizer = std::string(file.tokenizer())});
    }
  }
  return files;
}

Batch Corpus::read(const std::vector<Window>& windows, int64_t length) const {
  const auto rows = static_cast<int64_t>(windows.size());
  Batch batch{
      .input_BS = at::empty({rows, length}, at::kLong), .target_BS = at::empty({rows, length}, at::kLong), .document_BS = {}};
  if (number_documents_) batch.document_BS = at::empty({rows, length}, at::kInt);

  std::vector<int64_t> tokens(static_cast<size_t>(length) + 1);
  for (int64_t row = 0; row < rows; ++row) {
    const Window& window = windows[static_cast<size_t>(row)];
    window.file->read(window.begin, length + 1, vocab_size_, tokens.data());
    std::copy_n(tokens.data(), length, batch.input_BS.data_ptr<int64_t>() + row * length);
    std::copy_n(tokens.data() + 1, length, batch.target_BS.data_ptr<int64_t>() + row * length);
    if (!batch.document_BS) continue;
    int32_t* const document = batch.document_BS->data_ptr<int32_t>() + row * length;
    if (const auto& index = window.file->documents()) {
      number_by_index(*index, window.begin, length, document);
    } else {
      number_by_token(tokens.data(), length, eot_token_, document);
    }
  }
  return batch;
}

}  // namespace scatterlm

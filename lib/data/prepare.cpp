#include "lib/data/prepare.h"

#include <fnmatch.h>

#include <filesystem>
#include <span>
#include <string_view>

#include "lib/data/token_file.h"
#include "lib/data/token_writer.h"
#include "lib/data/tokenizer.h"
#include "lib/util/error.h"
#include "lib/util/mapped_file.h"
#include "lib/util/progress.h"
#include "lib/util/similar_path.h"

namespace scatterlm {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = 8 << 20;  // bounds the memory for the tokens of a huge document

/// Paths below `folder` whose file name matches, relative to it, in bytewise order.
std::vector<std::string> find_files(const fs::path& folder, const std::string& glob) try {
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const bool matches = fnmatch(glob.c_str(), entry.path().filename().c_str(), 0) == 0;
    if (matches && entry.is_regular_file()) found.push_back(entry.path().lexically_relative(folder).string());
  }
  std::sort(found.begin(), found.end());
  return found;
} catch (const fs::filesystem_error& error) {
  fail_user("{}: cannot read: {}", error.path1().string(), error.code().message());
}

std::vector<std::string> list_documents(const PrepareOptions& options) {
  std::vector<std::string> documents;
  for (const std::string& input : options.inputs) {
    if (!fs::exists(input)) fail_user("{}: no such file or folder{}", input, explain_missing_path(input));
    if (!fs::is_directory(input)) {
      documents.push_back(input);
      continue;
    }
    const auto found = find_files(input, options.glob);
    if (found.empty()) fail_user("{}: no file below it has a name like '{}' (--glob)", input, options.glob);
    for (const std::string& relative : found) documents.push_back((fs::path(input) / relative).string());
  }
  return documents;
}

/// The token files of one split.
class Split {
 public:
  Split(fs::path folder, std::string name, int64_t shard_tokens, int64_t vocab_size)
      : folder_(std::move(folder)), name_(std::move(name)), shard_tokens_(shard_tokens), vocab_size_(vocab_size) {}

  void append(std::span<const uint32_t> tokens) {
    while (!tokens.empty()) {
      if (writers_.empty() || writers_.back().num_tokens() == shard_tokens_) add_file();
      const int64_t room = shard_tokens_ == 0 ? TokenWriter::kMaxTokens : shard_tokens_ - writers_.back().num_tokens();
      const auto count = std::min(tokens.size(), static_cast<size_t>(room));
      writers_.back().append(tokens.first(count));
      tokens = tokens.subspan(count);
    }
  }

  void finish() {
    if (!writers_.empty()) writers_.back().finish();
  }

  void publish(PreparedSplit& result) {
    for (TokenWriter& writer : writers_) {
      writer.publish();
      result.files.push_back(writer.path());
      result.tokens += writer.num_tokens();
    }
  }

 private:
  void add_file() {
    finish();
    const std::string number = shard_tokens_ == 0 ? "" : fmt::format("_{:06}", writers_.size());
    writers_.emplace_back((folder_ / (name_ + number + ".bin")).string(), vocab_size_);
  }

  fs::path folder_;
  std::string name_;
  int64_t shard_tokens_;
  int64_t vocab_size_;
  std::vector<TokenWriter> writers_;
};

void append_document(const MappedFile& file, const Tokenizer& tokenizer, Split& split) {
  std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  while (text.size() > kPieceBytes) {
    const size_t size = tokenizer.split(text, kPieceBytes);
    split.append(tokenizer.encode(text.substr(0, size)));
    text.remove_prefix(size);
  }
  split.append(tokenizer.encode(text));
  const uint32_t eot = tokenizer.eot();
  split.append({&eot, 1});
}

/// Shards that an earlier run left would become part of `train_*.bin`.
void check_folder(const fs::path& folder) {
  if (!fs::exists(folder)) return;
  if (!fs::is_directory(folder)) fail_user("{}: --out must be a folder", folder.string());
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".bin")
      fail_user("{}: exists; remove the token files of --out {} or choose another folder", entry.path().string(),
                folder.string());
}

}  // namespace

Prepared prepare(const PrepareOptions& options) {
  const auto tokenizer = make_tokenizer(options.tokenizer);
  const auto documents = list_documents(options);
  const auto num_documents = static_cast<int64_t>(documents.size());
  if (options.val_every == 1) fail_user("--val-every 1 leaves no document to train on: give 0 or at least 2");
  if (options.val_every > num_documents)
    fail_user("--val-every {} holds out none of {} documents: give at most {}", options.val_every, num_documents,
              num_documents);
  check_folder(options.out);
  std::error_code error;
  fs::create_directories(options.out, error);
  if (error) fail_user("{}: cannot create: {}", options.out, error.message());

  int64_t total_bytes = 0;
  for (const std::string& path : documents) total_bytes += static_cast<int64_t>(fs::file_size(path, error));
  Progress progress("preparing", total_bytes, "bytes");
  Split train(options.out, "train", options.shard_tokens, tokenizer->vocab_size());
  Split validation(options.out, "val", 0, tokenizer->vocab_size());
  Prepared result;
  for (int64_t i = 0; i < num_documents; ++i) {
    const MappedFile file(documents[static_cast<size_t>(i)]);
    const bool held_out = options.val_every > 0 && i % options.val_every == options.val_every - 1;
    append_document(file, *tokenizer, held_out ? validation : train);
    ++(held_out ? result.validation : result.train).documents;
    result.bytes += static_cast<int64_t>(file.size());
    progress.update(result.bytes);
  }
  train.finish();
  validation.finish();
  progress.finish();
  train.publish(result.train);
  validation.publish(result.validation);
  return result;
}

}  // namespace scatterlm

#include "lib/data/prepare.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "lib/data/token_file.h"
#include "lib/data/token_writer.h"
#include "lib/data/tokenizer.h"
#include "lib/util/error.h"
#include "lib/util/file_error.h"
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
  fail_file(error.path1().string(), "read", error.code().value());
}

std::vector<std::string> list_documents(const PrepareOptions& options) {
  std::vector<std::string> documents;
  for (const std::string& input : options.inputs) {
    std::error_code unreadable;  // opening it says why
    const auto status = fs::status(input, unreadable);
    if (status.type() == fs::file_type::not_found)
      fail_user("{}: no such file or folder{}", input, explain_missing_path(input));
    if (!fs::is_directory(status)) {
      documents.push_back(input);
      continue;
    }
    const auto found = find_files(input, options.glob);
    if (found.empty()) fail_user("{}: no file below it has a name like '{}' (--glob)", input, options.glob);
    for (const std::string& relative : found) documents.push_back((fs::path(input) / relative).string());
  }
  return documents;
}

volatile std::sig_atomic_t received = 0;  // a handler can reach nothing else

/// While this lives a signal that ends the program is only noted, for stop_if_asked(). When it is destroyed, after the
/// temporary files are, the signal has its effect.
class NotedSignals {
 public:
  NotedSignals() {
    struct sigaction note {};
    note.sa_handler = [](int number) { received = number; };
    note.sa_flags = SA_RESTART;
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction old {};
      sigaction(number, nullptr, &old);
      if (old.sa_handler == SIG_IGN) continue;
      sigaction(number, &note, nullptr);
      old_.emplace_back(number, old);
    }
  }
  ~NotedSignals() {
    for (const auto& [number, old] : old_) sigaction(number, &old, nullptr);
    if (received != 0) raise(std::exchange(received, 0));
  }
  NotedSignals(const NotedSignals&) = delete;
  NotedSignals& operator=(const NotedSignals&) = delete;

 private:
  std::vector<std::pair<int, struct sigaction>> old_;
};

void stop_if_asked() {
  if (received != 0) fail("stopped by a signal; no token files were written");
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
    stop_if_asked();
    const size_t size = tokenizer.split(text, kPieceBytes);
    split.append(tokenizer.encode(text.substr(0, size)));
    text.remove_prefix(size);
  }
  split.append(tokenizer.encode(text));
  const uint32_t eot = tokenizer.eot();
  split.append({&eot, 1});
}

/// The folder of the token files, made if it is not there; no other process prepares in it as long as this lives. Where the
/// file system cannot lock folders (some network ones) nothing is held.
class OutputFolder {
 public:
  explicit OutputFolder(const fs::path& path) : path_(path.string()) {
    std::error_code error;
    const auto status = fs::status(path, error);
    if (fs::exists(status) && !fs::is_directory(status)) fail_user("{}: --out must be a folder", path_);
    made_ = fs::create_directories(path, error);
    if (error) fail_file(path_, "create", error.value());
    fd_ = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd_ < 0) fail_file(path_, "open", errno);
    locked_ = flock(fd_, LOCK_EX | LOCK_NB) == 0;
    if (locked_ || errno != EWOULDBLOCK) return;
    close(fd_);
    fail_user("{}: another process prepares data in this folder; wait for its end, or choose another --out", path_);
  }
  ~OutputFolder() {
    if (made_) rmdir(path_.c_str());  // unless something has come into it
    close(fd_);
  }
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Shards that an earlier run left would become part of `train_*.bin`.
  void require_no_token_files() const {
    for (const fs::directory_entry& entry : fs::directory_iterator(path_))
      if (entry.path().extension() == ".bin")
        fail_user("{}: exists; remove the token files of --out {} or choose another folder", entry.path().string(), path_);
  }

  /// Temporary files of a run that was killed.
  void remove_leftovers() const {
    if (!locked_) return;
    for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
      constexpr const char* kTemporary = "*.bin.[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f].tmp";
      if (fnmatch(kTemporary, entry.path().filename().c_str(), 0) == 0) unlink(entry.path().c_str());
    }
  }

 private:
  std::string path_;
  int fd_ = -1;
  bool made_ = false, locked_ = false;
};

}  // namespace

Prepared prepare(const PrepareOptions& options) {
  const auto tokenizer = make_tokenizer(options.tokenizer);
  const auto documents = list_documents(options);
  const auto num_documents = static_cast<int64_t>(documents.size());
  if (options.val_every == 1) fail_user("--val-every 1 leaves no document to train on: give 0 or at least 2");
  if (options.val_every > num_documents)
    fail_user("--val-every {} holds out none of {} documents: give at most {}", options.val_every, num_documents,
              num_documents);
  const OutputFolder folder(options.out);
  folder.require_no_token_files();
  folder.remove_leftovers();

  std::error_code error;
  int64_t total_bytes = 0;
  for (const std::string& path : documents) total_bytes += static_cast<int64_t>(fs::file_size(path, error));
  const NotedSignals signals;
  Progress progress("preparing", total_bytes, "bytes");
  Split train(options.out, "train", options.shard_tokens, tokenizer->vocab_size());
  Split validation(options.out, "val", 0, tokenizer->vocab_size());
  Prepared result;
  for (int64_t i = 0; i < num_documents; ++i) {
    stop_if_asked();
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

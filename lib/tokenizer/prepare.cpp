#include "lib/tokenizer/prepare.h"

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
#include "lib/tokenizer/encode_pool.h"
#include "lib/tokenizer/text_blocks.h"
#include "lib/tokenizer/tokenizer_files.h"
#include "lib/util/error.h"
#include "lib/util/file.h"
#include "lib/util/file_error.h"
#include "lib/util/progress.h"
#include "lib/util/similar_path.h"

namespace scatterlm {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

std::vector<std::string> list_text_files(const std::vector<std::string>& inputs, const std::string& glob) {
  std::vector<std::string> documents;
  for (const std::string& input : inputs) {
    std::error_code unreadable;  // opening it says why
    const auto status = fs::status(input, unreadable);
    if (status.type() == fs::file_type::not_found)
      fail_user("{}: no such file or folder{}", input, explain_missing_path(input));
    if (!fs::is_directory(status)) {
      documents.push_back(input);
      continue;
    }
    const auto found = find_files(input, glob);
    if (found.empty()) fail_user("{}: no file below it has a name like '{}' (--glob)", input, glob);
    for (const std::string& relative : found) documents.push_back((fs::path(input) / relative).string());
  }
  for (const std::string& path : documents) TextSource{path};  // one that cannot be read must not end hours of work
  return documents;
}

namespace {

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

/// The token files of one split: NAME.bin, or NAME_000000.bin and so on.
class Split {
 public:
  /// `numbered`: also where one file is enough.
  struct Options {
    fs::path folder;
    std::string name;
    int64_t file_tokens;  ///< of each file but the last
    bool numbered;
    int64_t vocab_size;
    std::string tokenizer;  ///< its hash
  };
  explicit Split(Options options) : options_(std::move(options)) {}

  void append(std::span<const uint32_t> tokens) {
    while (!tokens.empty()) {
      if (writers_.empty() || writers_.back().num_tokens() == options_.file_tokens) add_file();
      const auto room = static_cast<size_t>(options_.file_tokens - writers_.back().num_tokens());
      const auto count = std::min(tokens.size(), room);
      writers_.back().append(tokens.first(count));
      tokens = tokens.subspan(count);
    }
  }

  void finish() {
    if (!writers_.empty()) writers_.back().finish();
  }

  void publish(PreparedSplit& result) {
    const bool numbered = options_.numbered || writers_.size() > 1;
    for (size_t i = 0; i < writers_.size(); ++i) {
      result.files.push_back(path(numbered ? fmt::format("_{:06}", i) : ""));
      writers_[i].publish(result.files.back());
      result.tokens += writers_[i].num_tokens();
    }
  }

 private:
  std::string path(const std::string& number) const { return (options_.folder / (options_.name + number + ".bin")).string(); }
  void add_file() {
    finish();
    writers_.emplace_back(path(""), options_.vocab_size, options_.tokenizer);
  }

  Options options_;
  std::vector<TokenWriter> writers_;
};

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

/// Adds the token files' tokenizer to their folder. Throws Error if another one lies there.
void copy_tokenizer(const TokenizerFiles& tokenizer, const fs::path& folder, bool dry) {
  for (const auto& [name, text] : tokenizer.content) {
    const std::string path = (folder / name).string();
    if (path_exists(path)) {
      if (read_file(path) != text) fail_user("{}: is another tokenizer than {}; choose another --out", path, tokenizer.folder);
    } else if (!dry) {
      write_file_atomic(path, text);
    }
  }
}

uint32_t choose_end_of_text(const Tokenizer& tokenizer, const PrepareOptions& options) {
  const bool given = !options.end_of_text.empty();
  const auto token = given ? tokenizer.find_token(options.end_of_text) : tokenizer.eot();
  if (!token && given) fail_user("--end-of-text '{}' is no token of {}", options.end_of_text, options.tokenizer);
  if (!token)
    fail_user("{}: none of its special tokens is known to end a document: name it with --end-of-text", options.tokenizer);
  return *token;
}

/// Distributes documents between the splits.
class DocumentSink {
 public:
  DocumentSink(Split& train, Split& validation, int64_t val_every, Prepared& result)
      : train_(train), validation_(validation), val_every_(val_every), result_(result) {}

  /// From now on every document is held out.
  void hold_out_all() { val_every_ = 1; }

  void append(const EncodedBlock& block) {
    const std::span<const uint32_t> tokens(block.tokens);
    size_t begin = 0;
    for (const size_t end : block.document_ends) {
      current().append(tokens.subspan(begin, end - begin));
      ++(held_out() ? result_.validation : result_.train).documents;
      ++document_;
      begin = end;
    }
    current().append(tokens.subspan(begin));
    result_.bytes += block.text_bytes;
  }

 private:
  bool held_out() const { return val_every_ > 0 && document_ % val_every_ == val_every_ - 1; }
  Split& current() { return held_out() ? validation_ : train_; }

  Split& train_;
  Split& validation_;
  int64_t val_every_, document_ = 0;
  Prepared& result_;
};

void check_val_every(int64_t val_every, int64_t num_documents) {
  if (val_every > num_documents)
    fail_user("--val-every {} holds out none of {} documents: give at most {}", val_every, num_documents, num_documents);
}

int64_t sum_sizes(const std::vector<std::string>& paths) {
  std::error_code unreadable;  // opening it says why
  int64_t sum = 0;
  for (const std::string& path : paths) sum += static_cast<int64_t>(fs::file_size(path, unreadable));
  return sum;
}

}  // namespace

Prepared prepare(const PrepareOptions& options) {
  const auto tokenizer_files = read_tokenizer_files(options.tokenizer);
  const auto tokenizer = make_tokenizer(tokenizer_files);
  const EncodeOptions encode{.special = options.special ? SpecialTokens::kRecognised : SpecialTokens::kAsText,
                             .field = options.field.empty() ? "text" : options.field,
                             .eot = choose_end_of_text(*tokenizer, options)};
  const auto paths = list_text_files(options.inputs, options.glob);
  const auto val_paths =
      options.val_inputs.empty() ? std::vector<std::string>() : list_text_files(options.val_inputs, options.glob);
  if (options.val_every == 1) fail_user("--val-every 1 leaves no document to train on: give 0 or at least 2");
  const bool lines = !options.field.empty();
  if (!lines && std::none_of(paths.begin(), paths.end(), is_json_lines)) check_val_every(options.val_every, std::ssize(paths));
  const OutputFolder folder(options.out);
  folder.require_no_token_files();
  folder.remove_leftovers();
  copy_tokenizer(tokenizer_files, options.out, /*dry=*/true);

  const NotedSignals signals;
  Progress progress("preparing", sum_sizes(paths) + sum_sizes(val_paths), "bytes");
  const auto split = [&](const char* name, int64_t shard_tokens) {
    return Split({.folder = options.out,
                  .name = name,
                  .file_tokens = shard_tokens > 0 ? std::min(shard_tokens, options.most_tokens) : options.most_tokens,
                  .numbered = shard_tokens > 0,
                  .vocab_size = tokenizer->vocab_size(),
                  .tokenizer = tokenizer_files.hash()});
  };
  Split train = split("train", options.shard_tokens), validation = split("val", 0);
  Prepared result;
  DocumentSink sink(train, validation, options.val_every, result);
  EncodePool pool(*tokenizer, encode, options.threads);
  int64_t bytes_before = 0;
  const auto encode_files = [&](const std::vector<std::string>& files) {
    TextBlockReader reader({files, lines}, *tokenizer);
    for (bool more = true; more || !pool.is_empty();) {
      stop_if_asked();
      if (more && !pool.is_full()) {
        auto block = reader.next();
        more = block.has_value();
        if (block) pool.push(std::move(*block));
        continue;
      }
      sink.append(pool.pop());
      progress.update(bytes_before + reader.file_bytes());
    }
    bytes_before += reader.file_bytes();
  };
  encode_files(paths);
  sink.hold_out_all();
  encode_files(val_paths);
  check_val_every(options.val_every, result.train.documents + result.validation.documents);
  train.finish();
  validation.finish();
  progress.finish();
  copy_tokenizer(tokenizer_files, options.out, /*dry=*/false);
  train.publish(result.train);
  validation.publish(result.validation);
  return result;
}

}  // namespace scatterlm

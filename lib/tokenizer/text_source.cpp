#include "lib/tokenizer/text_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "lib/util/error.h"
#include "lib/util/file_error.h"

namespace scatterlm {
namespace {

constexpr size_t kInputBytes = 1 << 18;
constexpr size_t kBeginBytes = 512;  // tells its format

/// Turns some input into some output.
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  struct Step {
    size_t consumed, produced;
  };
  virtual Step run(std::string_view input, char* output, size_t room) = 0;
  /// Whether the input may end here.
  virtual bool complete() const = 0;
};

[[noreturn]] void fail_damaged(const std::string& path, const char* format) {
  fail_user("{}: damaged: not valid {} data", path, format);
}

class PlainBytes : public Decompressor {
 public:
  Step run(std::string_view input, char* output, size_t room) override {
    const size_t size = std::min(input.size(), room);
    std::copy_n(input.data(), size, output);
    return {size, size};
  }
  bool complete() const override { return true; }
};

class Gzip : public Decompressor {
 public:
  explicit Gzip(std::string path) : path_(std::move(path)) {
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~Gzip() override { inflateEnd(&stream_); }

  Step run(std::string_view input, char* output, size_t room) override {
    if (ended_ && !input.empty()) {  // another member follows
      inflateReset(&stream_);
      ended_ = false;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
    stream_.avail_in = static_cast<uInt>(input.size());
    stream_.next_out = reinterpret_cast<Bytef*>(output);
    stream_.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) fail_damaged(path_, "gzip");
    ended_ = result == Z_STREAM_END;
    return {input.size() - stream_.avail_in, room - stream_.avail_out};
  }
  bool complete() const override { return ended_; }

 private:
  std::string path_;
  z_stream stream_{};
  bool ended_ = false;
};

class Zstd : public Decompressor {
 public:
  explicit Zstd(std::string path) : path_(std::move(path)), stream_(ZSTD_createDStream()) {
    if (!stream_) throw std::bad_alloc();
  }
  ~Zstd() override { ZSTD_freeDStream(stream_); }
  Zstd(const Zstd&) = delete;
  Zstd& operator=(const Zstd&) = delete;

  Step run(std::string_view input, char* output, size_t room) override {
    ZSTD_inBuffer in{input.data(), input.size(), 0};
    ZSTD_outBuffer out{output, room, 0};
    const size_t wanted = ZSTD_decompressStream(stream_, &out, &in);
    if (ZSTD_isError(wanted)) fail_damaged(path_, "Zstandard");
    if (in.pos > 0 || out.pos > 0) complete_ = wanted == 0;  // without input it wants the beginning of another frame
    return {in.pos, out.pos};
  }
  bool complete() const override { return complete_; }

 private:
  std::string path_;
  ZSTD_DStream* stream_;
  bool complete_ = false;
};

bool is_gzip(std::string_view begin) { return begin.starts_with("\x1f\x8b"); }

/// A frame, or one that is to be skipped.
bool is_zstd(std::string_view begin) {
  return begin.starts_with("\x28\xb5\x2f\xfd") ||
         (begin.size() > 4 && begin.substr(1).starts_with("\x2a\x4d\x18") && (begin[0] & 0xf0) == 0x50);
}

/// The bytes say what it is: names are often wrong about compression. One that promises it is still believed, since a file
/// without it is then most likely damaged.
std::unique_ptr<Decompressor> make_decompressor(const std::string& path, std::string_view begin) {
  if (is_gzip(begin)) return std::make_unique<Gzip>(path);
  if (is_zstd(begin)) return std::make_unique<Zstd>(path);
  if (path.ends_with(".gz") && !begin.empty()) fail_damaged(path, "gzip");
  if (path.ends_with(".zst") && !begin.empty()) fail_damaged(path, "Zstandard");
  return std::make_unique<PlainBytes>();
}

struct OtherFormat {
  const char* name;
  size_t at;  ///< of the bytes by which it is known
  std::string_view bytes;
  const char* advice;
};
constexpr const char* kUnpack = "unpack it, compress its text with gzip or zstd, or leave it out with --glob";
constexpr OtherFormat kOtherFormats[] = {
    {"xz", 0, "\xfd\x37zXZ", kUnpack},
    {"bzip2", 4, "1AY&SY", kUnpack},
    {"bzip2", 4, "\x17\x72\x45\x38\x50\x90", kUnpack},  // of nothing
    {"lz4", 0, "\x04\x22\x4d\x18", kUnpack},
    {"zip", 0, "PK\x03\x04", kUnpack},
    {"7z", 0, "7z\xbc\xaf\x27\x1c", kUnpack},
    {"tar", 257, "ustar", kUnpack},
    {"Parquet", 0, "PAR1\x15",  // a gene has the first four as its name
     "make JSON lines of it: python -c \"import pandas; pandas.read_parquet('FILE').to_json('text.jsonl', orient='records', "
     "lines=True)\""},
};

void refuse_other_formats(const std::string& path, std::string_view begin) {
  for (const OtherFormat& format : kOtherFormats) {
    if (begin.size() > format.at && begin.substr(format.at).starts_with(format.bytes))
      fail_user("{}: {} is not supported; {}", path, format.name, format.advice);
  }
}

}  // namespace

struct TextSource::State {
  std::string path;
  int fd = -1;
  std::unique_ptr<Decompressor> decompressor;
  std::string input;
  size_t used = 0;    ///< of the input
  std::string begin;  ///< of the text, not yet read
  int64_t file_bytes = 0;
  bool file_ended = false, at_end = false;

  ~State() {
    if (fd >= 0) close(fd);
  }

  void fill(size_t size) {
    input.resize(size);
    used = 0;
    ssize_t count = -1;
    do count = ::read(fd, input.data(), input.size());
    while (count < 0 && errno == EINTR);
    if (count < 0) fail_file(path, "read", errno);
    input.resize(static_cast<size_t>(count));
    file_bytes += count;
    file_ended = count == 0;
  }
};

TextSource::TextSource(const std::string& path) : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.path = path;
  // O_NONBLOCK: a named pipe without a writer must not hang the start.
  state.fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (state.fd < 0) fail_file(path, "open", errno);
  struct stat info;
  if (fstat(state.fd, &info) != 0) fail_file(path, "open", errno);
  if (S_ISDIR(info.st_mode)) fail_file(path, "open", EISDIR);
  if (!S_ISREG(info.st_mode)) fail_user("{}: cannot open: not a regular file", path);
  state.fill(kBeginBytes);
  const bool compressed = is_gzip(state.input) || is_zstd(state.input);
  state.decompressor = make_decompressor(path, state.input);
  std::string begin;
  read(begin, kBeginBytes);
  refuse_other_formats(path, begin);
  if (compressed && (is_gzip(begin) || is_zstd(begin)))
    fail_user("{}: compressed twice is not supported; unpack it once", path);
  state.begin = std::move(begin);
}
TextSource::~TextSource() = default;
TextSource::TextSource(TextSource&&) noexcept = default;
TextSource& TextSource::operator=(TextSource&&) noexcept = default;

void TextSource::read(std::string& to, size_t size) {
  State& state = *state_;
  const size_t ahead = std::min(size, state.begin.size());
  to.append(state.begin, 0, ahead);
  state.begin.erase(0, ahead);
  size -= ahead;
  const size_t before = to.size();
  to.resize(before + size);
  size_t produced = 0;
  while (produced < size && !state.at_end) {
    if (state.used == state.input.size() && !state.file_ended) state.fill(kInputBytes);
    const auto step = state.decompressor->run(std::string_view(state.input).substr(state.used), to.data() + before + produced,
                                              size - produced);
    state.used += step.consumed;
    produced += step.produced;
    if (step.consumed > 0 || step.produced > 0 || !state.file_ended) continue;
    if (!state.decompressor->complete() && state.file_bytes > 0)
      fail_user("{}: damaged: it ends in the middle of its compressed data", state.path);
    state.at_end = true;
  }
  to.resize(before + produced);
}

bool TextSource::at_end() const { return state_->at_end && state_->begin.empty(); }
int64_t TextSource::file_bytes() const { return state_->file_bytes; }

}  // namespace scatterlm

#include "lib/data/token_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "lib/data/llmc_format.h"
#include "lib/util/error.h"
#include "lib/util/file.h"
#include "lib/util/file_error.h"

namespace scatterlm {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

template <class T>
void pack(std::span<const uint32_t> tokens, std::vector<char>& buffer) {
  const size_t end = buffer.size();
  buffer.resize(end + tokens.size() * sizeof(T));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const T token = static_cast<T>(tokens[i]);
    std::memcpy(buffer.data() + end + i * sizeof(T), &token, sizeof(T));
  }
}

}  // namespace

TokenWriter::TokenWriter(std::string path, int64_t vocab_size, std::string tokenizer)
    : path_(std::move(path)),
      temporary_(fmt::format("{}.{:08x}.tmp", path_, std::random_device()())),  // another process may write the same path
      tokenizer_(std::move(tokenizer)),
      wide_(vocab_size > 65536),
      end_(kLlmcHeaderBytes) {
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_to_write();
}

TokenWriter::TokenWriter(TokenWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      tokenizer_(std::move(other.tokenizer_)),
      wide_(other.wide_),
      published_(std::exchange(other.published_, true)),
      fd_(std::exchange(other.fd_, -1)),
      num_tokens_(other.num_tokens_),
      end_(other.end_),
      buffer_(std::move(other.buffer_)),
      hash_(std::move(other.hash_)) {}

TokenWriter::~TokenWriter() {
  if (fd_ >= 0) close(fd_);
  if (!published_) unlink(temporary_.c_str());
}

void TokenWriter::append(std::span<const uint32_t> tokens) {
  if (num_tokens_ + static_cast<int64_t>(tokens.size()) > kMaxTokens)
    fail("[token_writer] {}: more than {} tokens, which its header cannot count", path_, kMaxTokens);
  num_tokens_ += static_cast<int64_t>(tokens.size());
  wide_ ? pack<uint32_t>(tokens, buffer_) : pack<uint16_t>(tokens, buffer_);
  if (buffer_.size() >= kBufferBytes) flush();
}

void TokenWriter::finish() {
  flush();
  const LlmcFormat& format = kLlmcFormats[wide_ ? 1 : 0];
  const int32_t header[kLlmcHeaderBytes / sizeof(int32_t)] = {format.magic, format.version, static_cast<int32_t>(num_tokens_)};
  write_at(0, header, sizeof(header));
  const std::string checksum = std::string(kChecksumMark) + hash_.hex();
  write_at(kChecksumMarkAt, checksum.data(), checksum.size());
  if (!tokenizer_.empty()) {
    const std::string mark = std::string(kTokenizerMark) + tokenizer_;
    write_at(kTokenizerMarkAt, mark.data(), mark.size());
  }
  if (fsync(fd_) != 0) fail_to_write();
  if (close(std::exchange(fd_, -1)) != 0) fail_to_write();
}

void TokenWriter::publish(const std::string& path) {
  path_ = path;
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail_to_write();
  published_ = true;
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  fsync_dir(folder.empty() ? "." : folder);
}

void TokenWriter::flush() {
  write_at(end_, buffer_.data(), buffer_.size());
  hash_.add(buffer_.data(), buffer_.size());
  end_ += static_cast<int64_t>(buffer_.size());
  buffer_.clear();
}

void TokenWriter::write_at(int64_t offset, const void* data, size_t size) {
  const auto* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = pwrite(fd_, next, size, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_to_write();
    next += written;
    offset += written;
    size -= static_cast<size_t>(written);
  }
}

void TokenWriter::fail_to_write() const { fail_file(path_, "write", errno); }

}  // namespace scatterlm

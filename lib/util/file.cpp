#include "lib/util/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "lib/util/file_error.h"
#include "lib/util/mapped_file.h"

namespace scatterlm {
namespace {

[[noreturn]] void fail_to_write(const std::string& path) { fail_file(path, "write", errno); }

/// The kind of file, 0 for none.
mode_t kind_of(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0) return info.st_mode & S_IFMT;
  if (errno != ENOENT && errno != ENOTDIR) fail_file(path, "open", errno);
  return 0;
}

}  // namespace

FileWriter::FileWriter(std::string path) : path_(std::move(path)), temporary_(path_ + ".tmp") {
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_to_write(path_);
}

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

void FileWriter::write(const void* data, size_t size) {
  hash_.add(data, size);
  bytes_ += size;
  const auto* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(fd_, next, size);  // writes less at the end of a disk, or of 2 GiB
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_to_write(path_);
    next += written;
    size -= static_cast<size_t>(written);
  }
}

FileDigest FileWriter::commit() {
  if (fsync(fd_) != 0) fail_to_write(path_);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail_to_write(path_);
  close(fd_);  // nothing is left to fail: the data is on disk
  fd_ = -1;
  const auto folder = std::filesystem::path(path_).parent_path().string();
  fsync_dir(folder.empty() ? "." : folder);
  return {bytes_, hash_.hex()};
}

FileDigest write_file_atomic(const std::string& path, std::string_view text) {
  FileWriter file(path);
  file.write(text);
  return file.commit();
}

bool path_exists(const std::string& path) { return kind_of(path) != 0; }
bool is_folder(const std::string& path) { return kind_of(path) == S_IFDIR; }

std::string read_file(const std::string& path) {
  const MappedFile file(path);
  return std::string(reinterpret_cast<const char*>(file.data()), file.size());
}

void fsync_dir(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail_to_write(path);
  // Some network filesystems cannot sync folders (EINVAL); they keep the order of renames themselves.
  const bool synced = fsync(fd) == 0 || errno == EINVAL;
  const int reason = errno;
  close(fd);
  errno = reason;
  if (!synced) fail_to_write(path);
}

}  // namespace scatterlm

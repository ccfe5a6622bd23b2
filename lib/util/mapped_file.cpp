#include "lib/util/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lib/util/error.h"
#include "lib/util/similar_path.h"

namespace scatterlm {
namespace {

/// Closes on every way out; the mapping outlives the descriptor.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

[[noreturn]] void fail_to_open(const std::string& path, int error) {
  fail_user("{}: cannot open: {}{}", path, std::strerror(error), error == ENOENT ? explain_missing_path(path) : "");
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  // O_NONBLOCK: a named pipe without a writer must not hang the start.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) fail_to_open(path, errno);
  struct stat info;
  if (fstat(file.fd, &info) != 0) fail_to_open(path, errno);
  if (S_ISDIR(info.st_mode)) fail_to_open(path, EISDIR);
  if (!S_ISREG(info.st_mode)) fail_user("{}: cannot open: not a regular file", path);
  if (info.st_size == 0) return;  // mmap refuses a length of 0
  void* start = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, file.fd, 0);
  if (start == MAP_FAILED) fail_to_open(path, errno);
  data_ = static_cast<const std::byte*>(start);
  size_ = static_cast<size_t>(info.st_size);
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace scatterlm

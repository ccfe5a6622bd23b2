#include "lib/distributed/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lib/util/error.h"

namespace scatterlm {

SharedMemory::SharedMemory(size_t bytes) : fd_(memfd_create("scatterlm", MFD_CLOEXEC)), bytes_(bytes) {
  if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes)) != 0)
    fail("[shared memory] {} bytes: {}", bytes, std::strerror(errno));
  map();
}

SharedMemory::SharedMemory(const std::string& path, size_t bytes) : fd_(open(path.c_str(), O_RDWR | O_CLOEXEC)), bytes_(bytes) {
  if (fd_ < 0) {
    fail("{}: cannot open the memory of another rank: {}; the ranks of a machine must be of one user", path,
         std::strerror(errno));
  }
  struct stat info {};
  if (fstat(fd_, &info) != 0 || info.st_size != static_cast<off_t>(bytes)) {
    close(fd_);
    fail("{}: not the memory of another rank: {} bytes, must be {}", path, info.st_size, bytes);
  }
  map();
}

void SharedMemory::map() {
  void* address = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (address == MAP_FAILED) fail("[shared memory] cannot map {} bytes: {}", bytes_, std::strerror(errno));
  data_ = static_cast<std::byte*>(address);
}

SharedMemory::~SharedMemory() {
  munmap(data_, bytes_);
  close(fd_);
}

std::string SharedMemory::path() const { return fmt::format("/proc/{}/fd/{}", getpid(), fd_); }

}  // namespace scatterlm

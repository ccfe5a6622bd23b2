#pragma once
#include <cstddef>
#include <string>

namespace scatterlm {

/// Zeroed memory that several processes of one machine map. It has no name in the file system, so it is freed with the last
/// process, however that ends, and the size of /dev/shm does not limit it.
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes);
  /// Maps the memory of another process, in which path() has returned `path`. Throws Error if that process is not on this
  /// machine, or belongs to another user.
  SharedMemory(const std::string& path, size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Where other processes of the machine can open the memory.
  std::string path() const;
  std::byte* data() const { return data_; }

 private:
  void map();

  int fd_;
  size_t bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace scatterlm

#pragma once
#include <cstddef>
#include <string>

namespace scatterlm {

/// Zeroed memory that several processes of one machine map. It has no name in any folder, so it is gone with the last process,
/// however that ends, and no limit of /dev/shm applies to it.
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes);
  /// That of another process: `path` is what path() says there. Throws Error if that process is not on this machine.
  SharedMemory(const std::string& path, size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::string path() const;
  std::byte* data() const { return data_; }

 private:
  void map();

  int fd_;
  size_t bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace scatterlm

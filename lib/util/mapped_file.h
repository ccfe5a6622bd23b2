#pragma once
#include <cstddef>
#include <string>
#include <utility>

namespace scatterlm {

/// A whole file, mapped read-only. Pages are read from disk when touched; where that fails, as in a file that has become
/// shorter since, a handler of SIGBUS names the file on stderr and ends the process with kExitFailure.
class MappedFile {
 public:
  MappedFile() = default;  ///< nothing: size 0
  /// Throws Error "PATH: cannot open: REASON".
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  const std::byte* data() const { return data_; }  ///< page-aligned; null for an empty file
  size_t size() const { return size_; }
  /// Gives the memory of bytes begin..end-1 back to the system: they are read again from disk when touched again.
  void release(size_t begin, size_t end) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace scatterlm

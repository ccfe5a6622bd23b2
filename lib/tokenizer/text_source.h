#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace scatterlm {

/// The bytes of a file from its beginning to its end, decompressed where it begins as gzip or Zstandard data do.
class TextSource {
 public:
  /// Throws Error if it cannot be opened, or begins as an archive, a Parquet file or data compressed in another way; what is
  /// in a compressed file counts as well.
  explicit TextSource(const std::string& path);
  ~TextSource();
  TextSource(TextSource&&) noexcept;
  TextSource& operator=(TextSource&&) noexcept;

  /// Appends up to `size` bytes; fewer only at the end. Throws Error if the file is damaged.
  void read(std::string& to, size_t size);
  bool at_end() const;
  int64_t file_bytes() const;  ///< of the file itself, read so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace scatterlm

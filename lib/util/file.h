// Files that are either there in full, also after a power cut, or not there at all.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "lib/util/hash.h"

namespace scatterlm {

/// What was written, for a manifest.
struct FileDigest {
  uint64_t bytes = 0;
  std::string xxh3;
};

/// Writes PATH.tmp, which commit() makes durable and renames to PATH. Without commit() nothing remains.
/// Every failure throws Error "PATH: cannot write: REASON" as fail_file().
class FileWriter {
 public:
  explicit FileWriter(std::string path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  FileDigest commit();

 private:
  std::string path_, temporary_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
  Hash hash_;
};

FileDigest write_file_atomic(const std::string& path, std::string_view text);

/// Whether there is anything, or a folder, of that name. Throws Error "PATH: cannot open: REASON" if that cannot be found out.
bool path_exists(const std::string& path);
bool is_folder(const std::string& path);

/// The whole file. Throws Error "PATH: cannot open: REASON".
std::string read_file(const std::string& path);

/// Makes creations and renames inside the folder durable.
void fsync_dir(const std::string& path);

}  // namespace scatterlm

// Token files written byte by byte, as the tests of readers need them.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "lib/util/hash.h"

namespace scatterlm {

/// A folder of its own below the system's temporary one, removed at the end.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "scatterlm_data_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

  /// Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& bytes) const {
    const std::filesystem::path path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_bytes(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// Little-endian bytes of the values.
template <class T>
std::string packed(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

inline std::vector<int64_t> iota(int64_t count, int64_t first = 0) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<int64_t>(i);
  return values;
}

template <class T>
std::string tokens_as(const std::vector<int64_t>& tokens) {
  return packed(std::vector<T>(tokens.begin(), tokens.end()));
}

inline std::string llmc_header(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return packed(header);
}

inline std::string llmc_u16(const std::vector<int64_t>& tokens) {
  return llmc_header(20240520, 1, static_cast<int32_t>(tokens.size())) + tokens_as<uint16_t>(tokens);
}

/// The same file with a checksum, as we write it.
inline std::string with_checksum(std::string file) {
  return file.replace(12, 20, "XXH3" + hash_hex(std::string_view(file).substr(1024)));
}

inline std::string llmc_u32(const std::vector<int64_t>& tokens) {
  return llmc_header(20240801, 7, static_cast<int32_t>(tokens.size())) + tokens_as<uint32_t>(tokens);
}

/// A Megatron index; each length is one sequence, each document a number of sequences.
inline std::string megatron_index(uint8_t dtype, int64_t width, const std::vector<int32_t>& lengths,
                                  const std::vector<int64_t>& documents) {
  std::vector<int64_t> pointers;
  int64_t begin = 0;
  for (int32_t length : lengths) {
    pointers.push_back(begin);
    begin += length * width;
  }
  return std::string("MMIDIDX\0\0", 9) + packed<uint64_t>({1}) + packed<uint8_t>({dtype}) + packed<uint64_t>({lengths.size()}) +
         packed<uint64_t>({documents.size()}) + packed(lengths) + packed(pointers) + packed(documents);
}

/// A version 1 .npy whose header is padded as NumPy does.
inline std::string npy(const std::string& dict, const std::string& data) {
  std::string padded = dict;
  while ((10 + padded.size() + 1) % 64 != 0) padded += ' ';
  padded += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + packed<uint16_t>({static_cast<uint16_t>(padded.size())}) + padded + data;
}

}  // namespace scatterlm

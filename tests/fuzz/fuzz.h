// What the targets of coverage-guided fuzzing share (scripts/fuzz): a reader may accept its input or throw Error with one line;
// anything else that leaves it ends the process with the input kept.
#pragma once
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "lib/util/error.h"
#include "lib/util/escape.h"

namespace scatterlm::fuzz {

/// Calls read(); Error is what a broken input may end in.
template <class Read>
void accept_or_throw_error(Read&& read) {
  try {
    read();
  } catch (const Error& error) {
    for (const char* c = error.what(); *c != '\0'; ++c) {
      if (*c == '\n') std::abort();
    }
  }
}

inline std::string_view text(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

/// A file of this process, written anew for each input: readers map files.
class InputFile {
 public:
  explicit InputFile(const std::string& name) : path_("/dev/shm/scatterlm_fuzz_" + std::to_string(getpid()) + "_" + name) {}
  ~InputFile() { unlink(path_.c_str()); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& write(std::string_view bytes) const {
    std::ofstream(path_, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path_;
  }

 private:
  std::string path_;
};

}  // namespace scatterlm::fuzz

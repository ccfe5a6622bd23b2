#pragma once
#include <cstdint>
#include <string>

#include "lib/data/token_type.h"
#include "lib/util/mapped_file.h"

namespace scatterlm {

/// The header of a NumPy .npy file that holds tokens: one dimension, `<u2` or `<u4`.
struct NpyHeader {
  static bool is_npy(const MappedFile& file);

  /// Throws Error if the array is anything else.
  NpyHeader(const MappedFile& file, const std::string& path);

  TokenType type;
  int64_t num_tokens;
  int64_t num_bytes;  ///< of the header; the tokens follow
};

}  // namespace scatterlm

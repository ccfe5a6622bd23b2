#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace scatterlm {

/// How often each piece of a text occurs.
using PieceCounts = std::unordered_map<std::string, int64_t>;

struct CountOptions {
  std::vector<std::string> paths;  ///< text files or JSON lines, also compressed
  std::string field;               ///< as PrepareOptions::field
  int64_t threads = 0;
  size_t most_pieces = 4'000'000;  ///< of each thread; above it the rarest are forgotten
};

/// Counts the pieces into which a split pattern divides all documents, with progress on stderr. Bytes that are no UTF-8 are
/// left out. Throws Error naming a file that cannot be read, std::system_error where a thread cannot be started.
PieceCounts count_pieces(const CountOptions& options, std::string_view pattern);

}  // namespace scatterlm

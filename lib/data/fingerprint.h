// What tells one set of token files from another: the order of samples is a function of the files and their lengths.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace scatterlm {

struct FileFingerprint {
  std::string name;    ///< without its folder, which may be another one on another machine
  int64_t source = 0;  ///< number of the entry of data.train or data.validation, of those with a weight above 0
  int64_t tokens = 0;
  std::string xxh3;       ///< of blocks at equal distances
  std::string tokenizer;  ///< TokenFile::tokenizer(); not compared
};

/// "train.bin (24060 tokens, hash 0123456789abcdef)".
std::string describe(const FileFingerprint& file);

/// In which way `now` is another set of files than `before`, naming at most three of each; empty where every sample is the
/// same, also if files have other names.
std::string explain_change(const std::vector<FileFingerprint>& before, const std::vector<FileFingerprint>& now);

}  // namespace scatterlm

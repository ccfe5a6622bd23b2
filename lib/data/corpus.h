// The token files of a run, opened and checked, and how windows of them become batches.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "lib/config/config.h"
#include "lib/data/batch.h"
#include "lib/data/fingerprint.h"
#include "lib/data/token_file.h"

namespace scatterlm {

/// The files behind one entry of data.train or data.validation.
struct Source {
  std::string path;  ///< as configured
  double weight;
  std::vector<TokenFile> files;

  int64_t num_tokens() const;
};

/// A sequence: tokens begin .. begin+length of one file. Windows never cross files.
struct Window {
  const TokenFile* file;
  int64_t begin;
};

class Corpus {
 public:
  /// Opens every file of `entries` (the value of `key`) whose weight is not 0, and checks headers, sizes and tokens. Throws
  /// Error naming file and way out. The first 8 GiB of tokens are checked here, which takes seconds (files that hold a checksum
  /// against that as well); those beyond when they are read. Where every number of the token type is a token nothing is read.
  Corpus(const std::vector<BlendEntry>& entries, const char* key, const DataConfig& data, int64_t vocab_size);

  const std::vector<Source>& sources() const { return sources_; }
  int64_t num_files() const;
  int64_t num_tokens() const;
  /// One entry per file. Reads up to 64 KiB of each.
  std::vector<FileFingerprint> fingerprint() const;
  /// Bytes of tokens beyond that limit.
  int64_t unchecked_bytes() const { return unchecked_bytes_; }

  /// One row per window, of `length` tokens and their successors.
  Batch read(const std::vector<Window>& windows, int64_t length) const;

 private:
  void check(const TokenFile& file);

  int64_t vocab_size_;
  int64_t eot_token_;
  bool number_documents_;
  int64_t unchecked_bytes_ = 0;
  int64_t checked_bytes_ = 0;
  std::vector<Source> sources_;
};

}  // namespace scatterlm

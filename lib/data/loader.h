// From token files to batches.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/config/config.h"
#include "lib/data/batch.h"
#include "lib/data/fingerprint.h"

namespace scatterlm {

/// Endless global sample order over a weighted blend of token files. Depends on the seed and the epoch, not on the number of
/// ranks: rank r of W takes samples r*n .. r*n+n-1 of each global batch of W*n sequences.
class Loader {
 public:
  /// Opens and checks every file (headers, sizes, each token < vocab_size). Throws Error naming file and remedy.
  Loader(const DataConfig& data, int64_t vocab_size, int64_t sequence_length, int64_t seed, int64_t rank, int64_t world);
  ~Loader();

  /// The next global batch's own part: `num_sequences` (global, divisible by world) / world sequences. A thread prepares the
  /// batch after it meanwhile. Throws Error (also for what that thread met), and stays at its position then.
  Batch next(int64_t num_sequences);

  /// Samples consumed so far, over all ranks: the exact position for a checkpoint.
  int64_t position() const;
  /// Continues as if `position` samples had been consumed.
  void seek(int64_t position);

  /// The files as they were when the loader opened them.
  const std::vector<FileFingerprint>& fingerprint() const;
  int64_t total_tokens() const;  ///< tokens in all files of the blend
  std::string describe() const;  ///< one line: tokens, files, shares of the blend

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The validation files in sequences of sequence_length, in file order; the last one of a file may be shorter.
class EvalReader {
 public:
  /// max_tokens, rounded up to whole sequences, are taken at equal distances, so that every part of the files counts; 0 = all.
  EvalReader(const DataConfig& data, int64_t vocab_size, int64_t sequence_length, int64_t max_tokens);
  ~EvalReader();
  /// Up to num_sequences sequences of equal length; false at the end. The call after that begins another pass.
  bool next(int64_t num_sequences, Batch& batch);
  std::vector<FileFingerprint> fingerprint() const;
  int64_t num_tokens() const;  ///< targets that a full pass counts

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace scatterlm

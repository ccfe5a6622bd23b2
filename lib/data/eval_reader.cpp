#include <algorithm>

#include "lib/data/corpus.h"
#include "lib/data/loader.h"

namespace scatterlm {

struct EvalReader::State {
  Corpus corpus;
  int64_t length;
  std::vector<const TokenFile*> files;
  std::vector<int64_t> ends;  ///< per file: sequences up to its end
  int64_t num_sequences = 0;  ///< of a pass
  int64_t num_tokens = 0;     ///< targets of a pass
  int64_t position = 0;       ///< next sequence of the pass

  struct Sequence {
    Window window;
    int64_t length;
  };

  /// Number `index` of a pass: evenly spaced ones of those in the files.
  Sequence sequence(int64_t index) const {
    const int64_t stride = ends.back() / num_sequences, rest = ends.back() % num_sequences;
    const int64_t number = index * stride + index * rest / num_sequences;
    const auto file = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), number) - ends.begin());
    const int64_t begin = (number - (file == 0 ? 0 : ends[file - 1])) * length;
    return {{files[file], begin}, std::min(length, files[file]->num_tokens() - 1 - begin)};
  }
};

EvalReader::EvalReader(const DataConfig& data, int64_t vocab_size, int64_t sequence_length, int64_t max_tokens)
    : state_(new State{.corpus = Corpus(data.validation, "data.validation", data, vocab_size), .length = sequence_length}) {
  State& s = *state_;
  const auto sequences_of = [&](int64_t targets) { return targets / sequence_length + (targets % sequence_length != 0); };
  for (const Source& source : s.corpus.sources()) {
    for (const TokenFile& file : source.files) {
      if (file.num_tokens() < 2)
        fail_user("{}: one token has no successor to predict: validation needs at least two", file.path());
      s.files.push_back(&file);
      s.ends.push_back((s.ends.empty() ? 0 : s.ends.back()) + sequences_of(file.num_tokens() - 1));
    }
  }
  s.num_sequences = max_tokens > 0 ? std::min(s.ends.back(), sequences_of(max_tokens)) : s.ends.back();
  for (int64_t i = 0; i < s.num_sequences; ++i) s.num_tokens += s.sequence(i).length;
}

EvalReader::~EvalReader() = default;

bool EvalReader::next(int64_t num_sequences, Batch& batch) {
  State& s = *state_;
  if (s.position == s.num_sequences) {
    s.position = 0;
    return false;
  }
  const int64_t length = s.sequence(s.position).length, end = std::min(s.num_sequences, s.position + num_sequences);
  std::vector<Window> windows;
  for (; s.position < end; ++s.position) {
    const auto sequence = s.sequence(s.position);
    if (sequence.length != length) break;
    windows.push_back(sequence.window);
  }
  batch = s.corpus.read(windows, length);
  return true;
}

std::vector<FileFingerprint> EvalReader::fingerprint() const { return state_->corpus.fingerprint(); }

int64_t EvalReader::num_tokens() const { return state_->num_tokens; }

}  // namespace scatterlm

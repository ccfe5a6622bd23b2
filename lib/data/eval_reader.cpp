#include "lib/data/corpus.h"
#include "lib/data/loader.h"

namespace scatterlm {

struct EvalReader::State {
  Corpus corpus;
  std::vector<const TokenFile*> files;
  int64_t length;
  int64_t num_tokens = 0;

  size_t file = 0;  // where the next sequence begins
  int64_t begin = 0;
  int64_t left = 0;  // targets still to give

  void rewind() {
    file = 0;
    begin = 0;
    left = num_tokens;
  }
};

EvalReader::EvalReader(const DataConfig& data, int64_t vocab_size, int64_t sequence_length, int64_t max_tokens)
    : state_(new State{
          .corpus = Corpus(data.validation, "data.validation", data, vocab_size), .files = {}, .length = sequence_length}) {
  for (const Source& source : state_->corpus.sources()) {
    for (const TokenFile& file : source.files) {
      if (file.num_tokens() < 2)
        fail_user("{}: one token has no successor to predict: validation needs at least two", file.path());
      state_->files.push_back(&file);
      state_->num_tokens += file.num_tokens() - 1;
    }
  }
  if (max_tokens > 0) state_->num_tokens = std::min(state_->num_tokens, max_tokens);
  state_->rewind();
}

EvalReader::~EvalReader() = default;

bool EvalReader::next(int64_t num_sequences, Batch& batch) {
  State& s = *state_;
  if (s.left == 0) {
    s.rewind();
    return false;
  }
  int64_t in_file = s.files[s.file]->num_tokens() - 1 - s.begin;
  if (in_file == 0) {
    ++s.file;
    s.begin = 0;
    in_file = s.files[s.file]->num_tokens() - 1;
  }
  const int64_t available = std::min(in_file, s.left);
  const int64_t length = std::min(s.length, available);
  const int64_t rows = std::min(num_sequences, available / length);
  std::vector<Window> windows;
  for (int64_t row = 0; row < rows; ++row) windows.push_back({s.files[s.file], s.begin + row * length});
  batch = s.corpus.read(windows, length);
  s.begin += rows * length;
  s.left -= rows * length;
  return true;
}

int64_t EvalReader::num_tokens() const { return state_->num_tokens; }

}  // namespace scatterlm

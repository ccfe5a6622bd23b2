#include "lib/data/loader.h"

#include <future>

#include "lib/data/corpus.h"
#include "lib/data/sample_order.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

/// The windows of one source: numbered over its files, each epoch in another order.
class WindowOrder {
 public:
  WindowOrder(const Source& source, int64_t length) : source_(&source), length_(length) {
    // One more token than the length, for the last target; neighbours share it. A tail shorter than that is dropped.
    for (const TokenFile& file : source.files) ends_.push_back(num_windows() + (file.num_tokens() - 1) / length);
    if (num_windows() == 0)
      fail_user("{}: no file has more than train.sequence_length ({}) tokens: shorten it or give longer files", source.path,
                length);
  }

  int64_t num_windows() const { return ends_.empty() ? 0 : ends_.back(); }

  /// Window of the source's own sample number `index`, counted over epochs.
  Window operator()(int64_t seed, int64_t source_number, int64_t index) const {
    const int64_t epoch = index / num_windows();
    const Permutation order(num_windows(), epoch_key(seed, source_number, epoch));
    const int64_t window = order(index % num_windows());
    const auto file = std::upper_bound(ends_.begin(), ends_.end(), window) - ends_.begin();
    const int64_t first = file == 0 ? 0 : ends_[static_cast<size_t>(file) - 1];
    return {&source_->files[static_cast<size_t>(file)], (window - first) * length_};
  }

 private:
  const Source* source_;
  int64_t length_;
  std::vector<int64_t> ends_;  ///< per file: windows up to its end
};

}  // namespace

struct Loader::State {
  State(const DataConfig& data, int64_t vocab_size, int64_t sequence_length, int64_t seed, int64_t rank, int64_t world);

  Window window(int64_t sample) const;
  /// The own part of the global batch of n * world samples that begins at `position`.
  Batch make(int64_t position, int64_t n) const;

  Corpus corpus;
  std::vector<FileFingerprint> fingerprint;
  int64_t length, seed, rank, world;
  Blend blend;
  std::vector<WindowOrder> orders;

  int64_t position = 0;
  // What the next call will most likely ask for. A thread per batch costs some 20 us and needs no queue, no lock and no
  // shutdown: the future carries an exception over, and its destructor waits.
  std::future<Batch> ahead;
  int64_t ahead_position = 0;
  int64_t ahead_size = 0;
};

Loader::State::State(const DataConfig& data, int64_t vocab_size, int64_t sequence_length, int64_t seed, int64_t rank,
                     int64_t world)
    : corpus(data.train, "data.train", data, vocab_size),
      fingerprint(corpus.fingerprint()),
      length(sequence_length),
      seed(seed),
      rank(rank),
      world(world),
      blend([this] {
        std::vector<double> weights;
        for (const Source& source : corpus.sources()) weights.push_back(source.weight);
        return Blend(weights);
      }()) {
  for (const Source& source : corpus.sources()) orders.emplace_back(source, length);
}

Window Loader::State::window(int64_t sample) const {
  const Blend::Turn turn = blend(sample);
  return orders[static_cast<size_t>(turn.source)](seed, turn.source, turn.index);
}

Batch Loader::State::make(int64_t first, int64_t n) const {
  std::vector<Window> windows;
  for (int64_t i = 0; i < n; ++i) windows.push_back(window(first + rank * n + i));
  return corpus.read(windows, length);
}

Loader::Loader(const DataConfig& data, int64_t vocab_size, int64_t sequence_length, int64_t seed, int64_t rank, int64_t world)
    : state_(std::make_unique<State>(data, vocab_size, sequence_length, seed, rank, world)) {}

Loader::~Loader() = default;

Batch Loader::next(int64_t num_sequences) {
  State& s = *state_;
  if (num_sequences < 1 || num_sequences % s.world != 0)
    fail("[loader] num_sequences must be a multiple of the {} ranks, got {}", s.world, num_sequences);
  const int64_t n = num_sequences / s.world;
  const bool foreseen = s.ahead.valid() && s.ahead_position == s.position && s.ahead_size == n;
  Batch batch = foreseen ? s.ahead.get() : s.make(s.position, n);
  s.position += num_sequences;
  s.ahead_position = s.position;
  s.ahead_size = n;
  s.ahead = std::async(std::launch::async, [&s, first = s.position, n] { return s.make(first, n); });
  return batch;
}

int64_t Loader::position() const { return state_->position; }

void Loader::seek(int64_t position) {
  if (position < 0) fail_user("data position must not be negative, got {}", position);
  state_->position = position;
}

const std::vector<FileFingerprint>& Loader::fingerprint() const { return state_->fingerprint; }

int64_t Loader::total_tokens() const { return state_->corpus.num_tokens(); }

std::string Loader::describe() const {
  const Corpus& corpus = state_->corpus;
  std::string text = fmt::format("{} tokens in {} file{}", format_count(static_cast<double>(corpus.num_tokens())),
                                 corpus.num_files(), corpus.num_files() == 1 ? "" : "s");
  const char* separator = ": ";
  for (size_t i = 0; i < corpus.sources().size(); ++i) {
    text +=
        fmt::format("{}{} {:.3g} %", separator, corpus.sources()[i].path, 100 * state_->blend.share(static_cast<int64_t>(i)));
    separator = ", ";
  }
  if (corpus.unchecked_bytes() > 0)
    text += fmt::format("; {} of tokens are checked only when they are read",
                        format_bytes(static_cast<double>(corpus.unchecked_bytes())));
  return text;
}

}  // namespace scatterlm

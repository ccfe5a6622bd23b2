#include "lib/tokenizer/piece_counts.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>

#include "lib/tokenizer/bpe_tokenizer.h"
#include "lib/tokenizer/text_blocks.h"
#include "lib/tokenizer/utf8.h"
#include "lib/util/progress.h"

namespace scatterlm {
namespace {

constexpr size_t kLongestCounted = 256;  // bytes; a longer piece is no word, and no token is learned of it

BpeModel model_of_bytes(std::string_view pattern) {
  BpeModel model;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    model.token_bytes.emplace_back(1, static_cast<char>(byte));
    model.byte_tokens[byte] = byte;
  }
  model.pre_tokenizer.steps.push_back({SplitPattern(pattern, "the split pattern")});
  return model;
}

/// One thread's counts.
class PieceCounter {
 public:
  PieceCounter(const PreTokenizer& pre_tokenizer, size_t most_pieces) : finder_(pre_tokenizer), most_pieces_(most_pieces) {}

  void count(const TextBlock& block, const std::string& field) {
    if (block.kind == TextBlock::kLines) {
      for_each_json_text(block, field, [&](std::string_view text) { count_text(text); });
    } else {
      count_text(std::string_view(block.text).substr(0, block.end));
    }
    for (int64_t rare = 1; counts_.size() > most_pieces_; rare *= 2)
      std::erase_if(counts_, [=](const auto& entry) { return entry.second <= rare; });
  }
  PieceCounts& counts() { return counts_; }

 private:
  void count_text(std::string_view text) {
    while (!text.empty()) {
      const std::string_view valid = text.substr(0, valid_utf8_size(text));
      if (!valid.empty())
        finder_.find(valid, valid.size(), PieceFinder::End::kReal, [&](std::string_view piece) { count_piece(piece); });
      text.remove_prefix(valid.size());
      if (!text.empty()) text.remove_prefix(first_utf8_piece(text).size);
    }
  }
  void count_piece(std::string_view piece) {
    if (piece.size() > kLongestCounted) return;
    key_ = piece;
    ++counts_[key_];
  }

  PieceFinder finder_;
  size_t most_pieces_;
  PieceCounts counts_;
  std::string key_;
};

/// Blocks that wait for a thread.
class BlockQueue {
 public:
  explicit BlockQueue(size_t most) : most_(most) {}
  /// False if a thread has failed.
  bool push(TextBlock block) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return blocks_.size() < most_ || closed_; });
    if (closed_) return false;
    blocks_.push_back(std::move(block));
    changed_.notify_all();
    return true;
  }
  std::optional<TextBlock> pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !blocks_.empty() || closed_; });
    if (blocks_.empty()) return std::nullopt;
    TextBlock block = std::move(blocks_.front());
    blocks_.pop_front();
    changed_.notify_all();
    return block;
  }
  void close(std::exception_ptr error = nullptr) {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    if (error && !error_) error_ = error;
    if (error) blocks_.clear();
    changed_.notify_all();
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TextBlock> blocks_;
  size_t most_;
  bool closed_ = false;
  std::exception_ptr error_;
};

/// Feeds all blocks to counters on threads of their own.
void count_blocks(const CountOptions& options, TextBlockReader& reader, std::vector<PieceCounter>& counters,
                  Progress& progress) {
  const std::string field = options.field.empty() ? "text" : options.field;
  BlockQueue queue(2 * counters.size());
  std::vector<std::jthread> threads;
  try {
    for (PieceCounter& counter : counters) {
      threads.emplace_back([&queue, &counter, &field] {
        try {
          while (const auto block = queue.pop()) counter.count(*block, field);
        } catch (...) {
          queue.close(std::current_exception());
        }
      });
    }
    for (auto block = reader.next(); block && queue.push(std::move(*block)); block = reader.next())
      progress.update(reader.file_bytes());
    queue.close();
  } catch (...) {
    queue.close(std::current_exception());
  }
  threads.clear();  // waits for their end
  queue.rethrow();
}

}  // namespace

PieceCounts count_pieces(const CountOptions& options, std::string_view pattern) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.steps.push_back({SplitPattern(pattern, "the split pattern")});
  const BpeTokenizer cutter(model_of_bytes(pattern));
  const int64_t threads = options.threads > 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  std::vector<PieceCounter> counters;
  counters.reserve(static_cast<size_t>(threads));
  for (int64_t i = 0; i < threads; ++i) counters.emplace_back(pre_tokenizer, options.most_pieces);
  int64_t total_bytes = 0;
  std::error_code unreadable;  // opening it says why
  for (const std::string& path : options.paths)
    total_bytes += static_cast<int64_t>(std::filesystem::file_size(path, unreadable));
  TextBlockReader reader({options.paths, !options.field.empty()}, cutter);
  Progress progress("counting", total_bytes, "bytes");
  count_blocks(options, reader, counters, progress);
  progress.finish();
  PieceCounts counts = std::move(counters[0].counts());
  for (size_t i = 1; i < counters.size(); ++i) {
    for (const auto& [piece, count] : counters[i].counts()) counts[piece] += count;
    counters[i].counts() = {};
  }
  return counts;
}

}  // namespace scatterlm

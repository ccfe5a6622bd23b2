#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "lib/tokenizer/text_blocks.h"
#include "lib/tokenizer/tokenizer.h"

namespace scatterlm {

struct EncodeOptions {
  SpecialTokens special = SpecialTokens::kAsText;
  std::string field = "text";  ///< of JSON lines
  uint32_t eot = 0;            ///< appended to each document
};

struct EncodedBlock {
  std::vector<uint32_t> tokens;
  std::vector<size_t> document_ends;  ///< in `tokens`, behind the end-of-text token
  int64_t text_bytes = 0;
};

/// Turns blocks into tokens on several threads, in their order.
class EncodePool {
 public:
  /// 0 threads: as many as there are processors. The tokenizer must outlive the pool. Throws std::system_error where a thread
  /// cannot be started.
  EncodePool(const Tokenizer& tokenizer, EncodeOptions options, int64_t threads);
  ~EncodePool();

  /// Whether as many blocks are in it as keep its threads busy.
  bool is_full() const { return jobs_.size() >= 3 * threads_.size(); }
  bool is_empty() const { return jobs_.empty(); }
  void push(TextBlock block);
  /// Of the oldest block. One that turns out not to end between two tokens comes with the block after it, or empty if that is
  /// not there yet. Throws what the encoder threw.
  EncodedBlock pop();

 private:
  struct Job {
    TextBlock block;
    EncodedBlock result;
    bool whole = false;  ///< the encoder was sure of the block's end
    bool done = false;
    std::exception_ptr error;
  };
  void work(const std::stop_token& stop);
  void run(Job& job, TextEncoder& encoder) const;
  EncodedBlock finish_joined();

  const Tokenizer& tokenizer_;
  EncodeOptions options_;
  std::mutex mutex_;
  std::condition_variable_any todo_changed_;
  std::condition_variable job_done_;
  std::deque<std::shared_ptr<Job>> todo_, jobs_;
  std::unique_ptr<Job> joined_;  ///< blocks whose common end is not known to be between two tokens
  std::unique_ptr<TextEncoder> own_encoder_;
  std::vector<std::jthread> threads_;  ///< last: stopped and joined before anything that they use is destroyed
};

}  // namespace scatterlm

#include "lib/tokenizer/encode_pool.h"

#include <algorithm>

#include "lib/util/error.h"

namespace scatterlm {
namespace {

constexpr size_t kMostJoinedBytes = 16 << 20;

}  // namespace

EncodePool::EncodePool(const Tokenizer& tokenizer, EncodeOptions options, int64_t threads)
    : tokenizer_(tokenizer), options_(std::move(options)) {
  const int64_t count = threads > 0 ? threads : std::max(1u, std::thread::hardware_concurrency());
  for (int64_t i = 0; i < count; ++i) threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
}

EncodePool::~EncodePool() {
  for (std::jthread& thread : threads_) thread.request_stop();  // all of them, before the first is waited for
}

void EncodePool::push(TextBlock block) {
  auto job = std::make_shared<Job>();
  job->block = std::move(block);
  jobs_.push_back(job);
  {
    const std::lock_guard lock(mutex_);
    todo_.push_back(std::move(job));
  }
  todo_changed_.notify_one();
}

void EncodePool::work(const std::stop_token& stop) {
  std::unique_ptr<TextEncoder> encoder;
  for (;;) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      todo_changed_.wait(lock, stop, [this] { return !todo_.empty(); });
      if (stop.stop_requested()) return;
      job = std::move(todo_.front());
      todo_.pop_front();
    }
    try {
      if (!encoder) encoder = tokenizer_.encoder(options_.special);
      run(*job, *encoder);
    } catch (...) {
      job->error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      job->done = true;
    }
    job_done_.notify_all();
  }
}

void EncodePool::run(Job& job, TextEncoder& encoder) const {
  EncodedBlock& result = job.result;
  const auto end_document = [&] {
    result.tokens.push_back(options_.eot);
    result.document_ends.push_back(result.tokens.size());
  };
  result = {};
  if (job.block.kind == TextBlock::kLines) {
    for_each_json_text(job.block, options_.field, [&](std::string_view text) {
      encoder.encode({.text = text, .end = text.size()}, result.tokens);
      result.text_bytes += static_cast<int64_t>(text.size());
      end_document();
    });
    job.whole = true;
    return;
  }
  const TextBlock& block = job.block;
  job.whole = block.end == 0 ||
              encoder.encode({.text = block.text, .end = block.end, .starts = block.starts, .ends = block.ends}, result.tokens);
  result.text_bytes = static_cast<int64_t>(block.end);
  if (block.ends_document) end_document();
}

EncodedBlock EncodePool::pop() {
  const std::shared_ptr<Job> job = std::move(jobs_.front());
  jobs_.pop_front();
  {
    std::unique_lock lock(mutex_);
    job_done_.wait(lock, [&] { return job->done; });
  }
  if (job->error) std::rethrow_exception(job->error);
  if (!joined_ && job->whole) return std::move(job->result);
  if (!joined_) {
    joined_ = std::make_unique<Job>();
    joined_->block = std::move(job->block);
    return {};
  }
  TextBlock& block = joined_->block;
  block.text = block.text.substr(0, block.end) + job->block.text;
  block.end += job->block.end;
  block.ends = job->block.ends;
  block.ends_document = job->block.ends_document;
  return finish_joined();
}

EncodedBlock EncodePool::finish_joined() {
  TextBlock& block = joined_->block;
  if (!own_encoder_) own_encoder_ = tokenizer_.encoder(options_.special);
  if (block.end >= kMostJoinedBytes && !block.ends) {  // no place to cut: here is as good as elsewhere
    block.text.resize(block.end);
    block.ends = true;
  }
  run(*joined_, *own_encoder_);
  if (!joined_->whole && block.ends) fail("[tokenizer] the end of a text was not encoded");
  if (!joined_->whole) return {};
  EncodedBlock result = std::move(joined_->result);
  joined_.reset();
  return result;
}

}  // namespace scatterlm

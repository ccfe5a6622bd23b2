#include "lib/train/sampling.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>

#include "lib/train/decoder.h"

namespace scatterlm {
namespace {

/// Tokens by descending logit, the lower number first among equals. Sorted only as far as they are asked for: of a trained
/// model's vocabulary few tokens have most of the probability.
class Ranking {
 public:
  Ranking(const float* logits, int64_t size) {
    keys_.reserve(static_cast<size_t>(size));
    for (int64_t id = 0; id < size; id++)
      keys_.push_back(uint64_t{ordered(logits[id])} << 32 | (kLastToken - static_cast<uint32_t>(id)));
  }

  int64_t token(int64_t rank) {
    while (rank >= sorted_) sort_more();
    return kLastToken - static_cast<uint32_t>(keys_[static_cast<size_t>(rank)]);
  }

 private:
  static constexpr uint32_t kLastToken = 0xffffffff, kSign = 0x80000000;

  /// Integers that order as the numbers do.
  static uint32_t ordered(float x) {
    const auto bits = std::bit_cast<uint32_t>(x + 0.0f);  // -0 becomes 0
    return bits & kSign ? ~bits : bits | kSign;
  }

  void sort_more() {
    const int64_t end = std::min(std::ssize(keys_), std::max<int64_t>(64, 4 * sorted_));
    const auto first = keys_.begin() + sorted_, last = keys_.begin() + end;
    std::nth_element(first, last, keys_.end(), std::greater());
    std::sort(first, last, std::greater());
    sorted_ = end;
  }

  std::vector<uint64_t> keys_;  // logit, then token
  int64_t sorted_ = 0;
};

}  // namespace

int64_t sample_token(const at::Tensor& logits_V, const SamplingOptions& options, double uniform) {
  const auto logits = logits_V.contiguous();
  const float* values = logits.const_data_ptr<float>();
  const int64_t size = logits.numel();
  const int64_t likeliest = std::max_element(values, values + size) - values;
  if (options.temperature == 0) return likeliest;

  const auto weight = [&](int64_t id) { return std::exp((values[id] - values[likeliest]) / options.temperature); };
  Ranking ranking(values, size);
  int64_t count = size;  // of tokens to draw from
  double kept = 0;       // sum of their weights
  if (options.top_k > 0 && options.top_k < size) {
    count = options.top_k;
    for (int64_t i = 0; i < count; i++) kept += weight(ranking.token(i));
  } else {
    for (int64_t id = 0; id < size; id++) kept += weight(id);
  }
  if (options.top_p < 1) {
    const double wanted = options.top_p * kept;
    int64_t nucleus = 0;
    for (kept = 0; nucleus < count && (nucleus == 0 || kept < wanted); nucleus++) kept += weight(ranking.token(nucleus));
    count = nucleus;
  }
  double left = uniform * kept;
  for (int64_t i = 0; i + 1 < count; i++) {
    left -= weight(ranking.token(i));
    if (left < 0) return ranking.token(i);
  }
  return ranking.token(count - 1);
}

void generate(nn::Model& model, const std::vector<int64_t>& prompt, int64_t max_tokens, const SamplingOptions& options,
              const std::function<bool(int64_t)>& emit) {
  std::mt19937_64 random(static_cast<uint64_t>(options.seed));
  constexpr int64_t kReserved = 4096;  // a text may end long before max_tokens
  const auto prompt_length = static_cast<int64_t>(prompt.size());
  Decoder decoder(model, prompt_length + std::min(max_tokens, kReserved));
  auto tokens = at::tensor(prompt, at::kLong).to(model.device()).view({1, -1});
  for (int64_t made = 0; made < max_tokens; made++) {
    const auto logits = decoder.next(tokens).squeeze(0).cpu();
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;
    const int64_t token = sample_token(logits, options, uniform);
    if (!emit(token)) return;
    tokens = at::full({1, 1}, token, tokens.options());
  }
}

}  // namespace scatterlm

#include "lib/train/sampling.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace scatterlm {

int64_t sample_token(const at::Tensor& logits_V, const SamplingOptions& options, double uniform) {
  const auto logits = logits_V.contiguous();
  const float* values = logits.const_data_ptr<float>();
  const int64_t size = logits.numel();
  if (options.temperature == 0) return std::max_element(values, values + size) - values;

  std::vector<int64_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return values[a] > values[b]; });
  if (options.top_k > 0) order.resize(std::min(size, options.top_k));
  std::vector<double> weights;
  for (const int64_t id : order) weights.push_back(std::exp((values[id] - values[order[0]]) / options.temperature));

  double kept = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (options.top_p < 1) {
    const double wanted = options.top_p * kept;
    double sum = 0;
    size_t count = 0;
    while (count < weights.size() && (count == 0 || sum < wanted)) sum += weights[count++];
    order.resize(count);
    kept = sum;
  }
  double left = uniform * kept;
  for (size_t i = 0; i + 1 < order.size(); i++) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order.back();
}

void generate(nn::Model& model, const std::vector<int64_t>& prompt, int64_t max_tokens, const SamplingOptions& options,
              const std::function<bool(int64_t)>& emit) {
  at::NoGradGuard no_grad;
  std::mt19937_64 random(static_cast<uint64_t>(options.seed));
  nn::KvCache cache;
  cache.layers.resize(static_cast<size_t>(model.config().num_hidden_layers));
  auto tokens = at::tensor(prompt, at::kLong).to(model.device()).view({1, -1});
  for (int64_t made = 0; made < max_tokens; made++) {
    nn::Context context{.cache = &cache};
    const auto hidden = model.forward(tokens, context);
    const auto logits = model.logits(hidden.select(1, -1)).squeeze(0).cpu();
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;
    const int64_t token = sample_token(logits, options, uniform);
    if (!emit(token)) return;
    tokens = at::full({1, 1}, token, tokens.options());
  }
}

}  // namespace scatterlm

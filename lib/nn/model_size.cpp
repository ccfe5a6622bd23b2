#include "lib/nn/model_size.h"

#include <limits>

#include "lib/nn/layer_kinds.h"

namespace scatterlm::nn {
namespace {

void add(int64_t& count, int64_t copies, int64_t elements) {
  int64_t more = 0;
  if (__builtin_mul_overflow(copies, elements, &more) || __builtin_add_overflow(count, more, &count))
    count = std::numeric_limits<int64_t>::max();
}

}  // namespace

void ParameterCount::vectors(int64_t copies, int64_t active_copies, int64_t elements) {
  add(size_.total, copies, elements);
  add(size_.active, active_copies, elements);
}

void ParameterCount::matrices(int64_t copies, int64_t active_copies, int64_t elements) {
  vectors(copies, active_copies, elements);
  add(size_.active_matmul, active_copies, elements);
}

ModelSize model_size(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  ParameterCount count;
  count.matrix(config.vocab_size * hidden);                                   // head
  if (!config.tie_word_embeddings) count.vector(config.vocab_size * hidden);  // an embedding is looked up, not multiplied
  count.vector(hidden);
  for (const LayerKind kind : config.layer_kinds()) {
    count.vector(2 * hidden);
    sub_layer_kind(kind.attention).add_parameters(config, count);
    sub_layer_kind(kind.mlp).add_parameters(config, count);
  }
  return count.size();
}

double flops_per_token(const ModelConfig& config, int64_t sequence_length) {
  double flops = 6.0 * static_cast<double>(model_size(config).active_matmul);
  for (const LayerKind kind : config.layer_kinds())
    flops += sub_layer_kind(kind.attention).attention_flops(config, sequence_length);
  return flops;
}

}  // namespace scatterlm::nn

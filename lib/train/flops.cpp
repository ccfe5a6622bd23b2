#include "lib/train/flops.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "lib/util/text.h"

namespace scatterlm {
namespace {

/// Counts of one part of the model. A matrix multiplies activations; a vector (norm, bias) does not.
struct Count {
  ModelSize size;

  /// Where 64 bits do not hold the count, it stays at their largest number.
  static void add(int64_t& count, int64_t copies, int64_t elements) {
    int64_t more = 0;
    if (__builtin_mul_overflow(copies, elements, &more) || __builtin_add_overflow(count, more, &count))
      count = std::numeric_limits<int64_t>::max();
  }
  void matrices(int64_t copies, int64_t active_copies, int64_t elements) {
    vectors(copies, active_copies, elements);
    add(size.active_matmul, active_copies, elements);
  }
  void matrix(int64_t elements) { matrices(1, 1, elements); }
  void vectors(int64_t copies, int64_t active_copies, int64_t elements) {
    add(size.total, copies, elements);
    add(size.active, active_copies, elements);
  }
  void vector(int64_t elements) { vectors(1, 1, elements); }
};

int64_t mlp_elements(Activation activation, int64_t hidden, int64_t width) {
  return (is_gated(activation) ? 3 : 2) * hidden * width;
}

void count_qk_norm(Count& count, QkNorm kind, int64_t head_dim, int64_t query_width, int64_t key_width) {
  if (kind == QkNorm::kHead) count.vector(2 * head_dim);
  if (kind == QkNorm::kFull) count.vector(query_width + key_width);
}

void count_gqa(Count& count, const AttentionConfig& config, int64_t hidden) {
  const int64_t query = config.num_attention_heads * config.head_dim;
  const int64_t key = config.num_key_value_heads * config.head_dim;
  count.matrix((query + 2 * key) * hidden);
  count.matrix(hidden * query);
  if (config.bias) count.vector(query + 2 * key + hidden);
  count_qk_norm(count, config.qk_norm, config.head_dim, query, key);
}

void count_moa(Count& count, const MoaConfig& config, int64_t hidden) {
  const int64_t width = config.num_key_value_heads * config.head_dim;
  count.matrix(config.num_experts * hidden);  // router
  count.matrices(config.num_experts, config.num_experts_per_tok, 2 * width * hidden);
  count.matrix(2 * width * hidden);
  count_qk_norm(count, config.qk_norm, config.head_dim, width, width);
}

void count_moe(Count& count, const MoeConfig& config, int64_t hidden) {
  count.matrix(config.num_experts * hidden);  // router
  count.matrices(config.num_experts, config.num_experts_per_tok,
                 mlp_elements(config.activation, hidden, config.moe_intermediate_size));
  if (config.bias) {
    const int64_t up = (is_gated(config.activation) ? 2 : 1) * config.moe_intermediate_size;
    count.vectors(config.num_experts, config.num_experts_per_tok, up + hidden);
  }
  count.matrix(mlp_elements(config.activation, hidden, config.shared_intermediate_size));
}

/// heads * head_dim of a layer's attention.
int64_t query_width(const ModelConfig& config, AttentionKind kind) {
  const MoaConfig& moa = config.moa;
  return kind == AttentionKind::kMoa ? moa.num_key_value_heads * moa.num_experts_per_tok * moa.head_dim
                                     : config.attention.num_attention_heads * config.attention.head_dim;
}

/// Positions that a query sees on average, where full attention counts as half of the sequence.
double positions_seen(const ModelConfig& config, AttentionKind kind, int64_t sequence_length) {
  const auto length = static_cast<double>(sequence_length);
  if (kind != AttentionKind::kSwa) return length / 2;
  const auto window = std::min(static_cast<double>(config.attention.window), length);
  return window - window * window / (2 * length);
}

}  // namespace

ModelSize model_size(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  Count count;
  count.matrix(config.vocab_size * hidden);                                   // head
  if (!config.tie_word_embeddings) count.vector(config.vocab_size * hidden);  // an embedding is looked up, not multiplied
  count.vector(hidden);
  for (const LayerKind kind : config.layer_kinds()) {
    count.vector(2 * hidden);
    if (kind.attention == AttentionKind::kMoa) {
      count_moa(count, config.moa, hidden);
    } else {
      count_gqa(count, config.attention, hidden);
    }
    if (kind.mlp == MlpKind::kMoe) {
      count_moe(count, config.moe, hidden);
    } else {
      count.matrix(mlp_elements(config.dense.activation, hidden, config.dense.intermediate_size));
    }
  }
  return count.size;
}

double flops_per_token(const ModelConfig& config, int64_t sequence_length) {
  double flops = 6.0 * static_cast<double>(model_size(config).active_matmul);
  for (const LayerKind kind : config.layer_kinds()) {
    flops += 12.0 * static_cast<double>(query_width(config, kind.attention)) *
             positions_seen(config, kind.attention, sequence_length);
  }
  return flops;
}

std::string describe_model(const Config& config) {
  const auto size = model_size(config.model);
  return fmt::format("{} parameters, {} active, {} FLOPs a token", format_count(static_cast<double>(size.total)),
                     format_count(static_cast<double>(size.active)),
                     format_count(flops_per_token(config.model, config.train.sequence_length)));
}

std::optional<PeakFlops> peak_bfloat16(std::string_view gpu_name) {
  struct Entry {
    std::string_view name;
    PeakFlops peak;
  };
  static constexpr std::string_view kMeasured = "measured with a large GEMM", kDataSheet = "data sheet";
  // Whole names, but for those that end in '-'. H100 and H200 have the same tensor cores; their data sheet says 989,
  // which no GEMM reaches within the power limit.
  static constexpr Entry kEntries[] = {
      {"NVIDIA H200", {723e12, kMeasured}},
      {"NVIDIA H100 80GB HBM3", {723e12, kMeasured}},
      {"NVIDIA H100 PCIe", {756e12, kDataSheet}},
      {"NVIDIA B200", {2250e12, kDataSheet}},
      {"NVIDIA A100-", {312e12, kDataSheet}},
      {"NVIDIA A100 80GB PCIe", {312e12, kDataSheet}},
      {"NVIDIA A40", {149.7e12, kDataSheet}},
      {"NVIDIA L40S", {362e12, kDataSheet}},
      {"NVIDIA L4", {121e12, kDataSheet}},
      {"NVIDIA GeForce RTX 5090", {209.5e12, kDataSheet}},
      {"NVIDIA GeForce RTX 4090", {165.2e12, kDataSheet}},
      {"NVIDIA GeForce RTX 3090", {71e12, kDataSheet}},
  };
  for (const Entry& entry : kEntries) {
    const bool family = entry.name.ends_with('-') && gpu_name.starts_with(entry.name);
    if (family || gpu_name == entry.name) return entry.peak;
  }
  return std::nullopt;
}

}  // namespace scatterlm

#include "lib/hf/family.h"

#include <fmt/ranges.h>

#include "lib/config/value_text.h"
#include "lib/util/error.h"

namespace scatterlm::hf {
namespace {

template <class T>
std::vector<T> operator+(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<SameKey> sizes(const char* rms_norm_eps, const char* tie_word_embeddings = "false") {
  return {{"vocab_size", "model.vocab_size", nullptr},
          {"hidden_size", "model.hidden_size", nullptr},
          {"num_hidden_layers", "model.num_hidden_layers", nullptr},
          {"rms_norm_eps", "model.rms_norm_eps", rms_norm_eps},
          {"initializer_range", "model.initializer_range", "0.02"},
          {"tie_word_embeddings", "model.tie_word_embeddings", tie_word_embeddings},
          {"max_position_embeddings", "train.sequence_length", "2048"}};
}

std::vector<SameKey> attention_keys() {
  return {{"num_attention_heads", "model.attention.num_attention_heads", nullptr},
          {"num_key_value_heads", "model.attention.num_key_value_heads", "=num_attention_heads"}};
}

std::vector<SameKey> experts(const char* count) {
  return {{count, "model.moe.num_experts", nullptr}, {"num_experts_per_tok", "model.moe.num_experts_per_tok", nullptr}};
}

std::vector<SameKey> granite_multipliers() {
  return {{"embedding_multiplier", "model.embedding_multiplier", "1.0"},
          {"residual_multiplier", "model.residual_multiplier", "1.0"},
          {"logits_scaling", "model.logits_scaling", "1.0"},
          {"attention_multiplier", "model.attention.multiplier", "1.0"}};
}

const SameKey kDenseWidth{"intermediate_size", "model.dense.intermediate_size", nullptr};
const SameKey kExpertWidth{"intermediate_size", "model.moe.moe_intermediate_size", nullptr};
const SameKey kMoeWidth{"moe_intermediate_size", "model.moe.moe_intermediate_size", nullptr};
const SameKey kAttentionBias{"attention_bias", "model.attention.bias", "false"};
const SameKey kNormTopkProb{"norm_topk_prob", "model.router.norm_topk_prob", "false"};

const Constant kNoScaling{"model.router.routed_scaling_factor", "1"};
const Constant kTopkFirst{"model.router.topk_before_softmax", "true"};
const Constant kNormPerHead{"model.attention.qk_norm", "head"};
const Constant kNoWindow{"use_sliding_window", "false"};

std::vector<TensorRule> attention_tensors() {
  return {{"input_layernorm.weight", {"input_layernorm.weight"}},
          {"post_attention_layernorm.weight", {"post_attention_layernorm.weight"}},
          {"attention.qkv_proj.weight", {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}},
          {"attention.qkv_proj.bias", {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"}},
          {"attention.o_proj.weight", {"self_attn.o_proj.weight"}},
          {"attention.o_proj.bias", {"self_attn.o_proj.bias"}},
          {"attention.q_norm.weight", {"self_attn.q_norm.weight"}},
          {"attention.k_norm.weight", {"self_attn.k_norm.weight"}}};
}

std::vector<TensorRule> dense_tensors() {
  return {{"mlp.up_proj.weight", {"mlp.gate_proj.weight", "mlp.up_proj.weight"}},
          {"mlp.up_proj.bias", {"mlp.gate_proj.bias", "mlp.up_proj.bias"}},
          {"mlp.down_proj.weight", {"mlp.down_proj.weight"}},
          {"mlp.down_proj.bias", {"mlp.down_proj.bias"}}};
}

std::vector<TensorRule> moe_tensors() {
  return {{"mlp.router.weight", {"mlp.gate.weight"}},
          {"mlp.experts.up_proj", {"mlp.experts.{e}.gate_proj.weight", "mlp.experts.{e}.up_proj.weight"}},
          {"mlp.experts.down_proj", {"mlp.experts.{e}.down_proj.weight"}}};
}

std::vector<TensorRule> granite_tensors() {
  return {{"mlp.router.weight", {"block_sparse_moe.router.layer.weight"}},
          {"mlp.experts.up_proj", {"block_sparse_moe.input_linear.weight"}},
          {"mlp.experts.down_proj", {"block_sparse_moe.output_linear.weight"}}};
}

Family llama() {
  return {.model_type = "llama",
          .architecture = "LlamaForCausalLM",
          .keys = sizes("1.0e-06") + attention_keys() +
                  std::vector<SameKey>{kDenseWidth, kAttentionBias, {"mlp_bias", "model.dense.bias", "false"}},
          .tensors = attention_tensors() + dense_tensors()};
}

Family mistral() {
  return {.model_type = "mistral",
          .architecture = "MistralForCausalLM",
          .windows = Windows::kAllLayers,
          .window_absent = "4096",
          .keys = sizes("1.0e-06") + attention_keys() + std::vector<SameKey>{kDenseWidth},
          .tensors = attention_tensors() + dense_tensors()};
}

Family mixtral() {
  return {.model_type = "mixtral",
          .architecture = "MixtralForCausalLM",
          .mlp_layers = MlpLayers::kMoe,
          .windows = Windows::kAllLayers,
          .rope_theta_absent = "1000000",
          .keys = sizes("1.0e-05") + attention_keys() + experts("num_local_experts") + std::vector<SameKey>{kExpertWidth},
          .ours = {kNoScaling, {"model.router.norm_topk_prob", "true"}},
          .tensors =
              attention_tensors() +
              std::vector<TensorRule>{
                  {"mlp.router.weight", {"block_sparse_moe.gate.weight"}},
                  {"mlp.experts.up_proj", {"block_sparse_moe.experts.{e}.w1.weight", "block_sparse_moe.experts.{e}.w3.weight"}},
                  {"mlp.experts.down_proj", {"block_sparse_moe.experts.{e}.w2.weight"}}}};
}

Family olmoe() {
  return {.model_type = "olmoe",
          .architecture = "OlmoeForCausalLM",
          .mlp_layers = MlpLayers::kMoe,
          .head_dim = nullptr,
          .keys = sizes("1.0e-05") + attention_keys() + experts("num_experts") +
                  std::vector<SameKey>{
                      kExpertWidth, kNormTopkProb, kAttentionBias, {"clip_qkv", "model.attention.clip_qkv", "0", Zero::kNull}},
          .ours = {kNoScaling, {"model.attention.qk_norm", "full"}},
          .tensors = attention_tensors() + moe_tensors()};
}

Family qwen2_moe() {
  return {.model_type = "qwen2_moe",
          .architecture = "Qwen2MoeForCausalLM",
          .mlp_layers = MlpLayers::kMixed,
          .head_dim = nullptr,
          .keys = sizes("1.0e-06") + attention_keys() + experts("num_experts") +
                  std::vector<SameKey>{
                      kDenseWidth,
                      kMoeWidth,
                      kNormTopkProb,
                      {"shared_expert_intermediate_size", "model.moe.shared_intermediate_size", "5632", Zero::kRefused},
                      {"qkv_bias", "model.attention.qkv_bias", "true"}},
          .theirs = {kNoWindow},
          .ours = {kNoScaling, {"model.moe.shared_gate", "true"}},
          .tensors = attention_tensors() + dense_tensors() + moe_tensors() +
                     std::vector<TensorRule>{{"mlp.shared.up_proj.weight",
                                              {"mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight"}},
                                             {"mlp.shared.down_proj.weight", {"mlp.shared_expert.down_proj.weight"}},
                                             {"mlp.shared_gate.weight", {"mlp.shared_expert_gate.weight"}}}};
}

Family qwen3() {
  return {.model_type = "qwen3",
          .architecture = "Qwen3ForCausalLM",
          .windows = Windows::kLayerTypes,
          .head_dim_absent = "128",
          .keys = sizes("1.0e-06") + attention_keys() + std::vector<SameKey>{kDenseWidth, kAttentionBias},
          .ours = {kNormPerHead},
          .tensors = attention_tensors() + dense_tensors()};
}

Family qwen3_moe() {
  return {.model_type = "qwen3_moe",
          .architecture = "Qwen3MoeForCausalLM",
          .mlp_layers = MlpLayers::kMixed,
          .keys = sizes("1.0e-06") + attention_keys() + experts("num_experts") +
                  std::vector<SameKey>{kDenseWidth, kMoeWidth, kNormTopkProb, kAttentionBias},
          .theirs = {kNoWindow},
          .ours = {kNoScaling, kNormPerHead},
          .tensors = attention_tensors() + dense_tensors() + moe_tensors()};
}

Family granitemoe() {
  return {.model_type = "granitemoe",
          .architecture = "GraniteMoeForCausalLM",
          .mlp_layers = MlpLayers::kMoe,
          .head_dim = nullptr,
          .keys = sizes("1.0e-06") + attention_keys() + experts("num_local_experts") + granite_multipliers() +
                  std::vector<SameKey>{kExpertWidth, kAttentionBias},
          .theirs = {{"position_embedding_type", "\"rope\""}},
          .ours = {kNoScaling, kTopkFirst},
          .tensors = attention_tensors() + granite_tensors()};
}

Family granitemoeshared() {
  Family family = granitemoe();
  family.model_type = "granitemoeshared";
  family.architecture = "GraniteMoeSharedForCausalLM";
  family.keys.push_back({"shared_intermediate_size", "model.moe.shared_intermediate_size", "0"});
  family.tensors.push_back({"mlp.shared.up_proj.weight", {"shared_mlp.input_linear.weight"}});
  family.tensors.push_back({"mlp.shared.down_proj.weight", {"shared_mlp.output_linear.weight"}});
  return family;
}

/// Its attention has experts, in number and choice those of the MLP.
Family jetmoe() {
  return {.model_type = "jetmoe",
          .architecture = "JetMoeForCausalLM",
          .attention = AttentionKind::kMoa,
          .mlp_layers = MlpLayers::kMoe,
          .head_dim = "kv_channels",
          .head_dim_absent = "128",
          .activation = "activation_function",
          .keys = sizes("1.0e-06", "true") + experts("num_local_experts") +
                  std::vector<SameKey>{kExpertWidth,
                                       {"num_local_experts", "model.moa.num_experts", nullptr},
                                       {"num_experts_per_tok", "model.moa.num_experts_per_tok", nullptr},
                                       {"num_key_value_heads", "model.moa.num_key_value_heads", nullptr}},
          .theirs = {{"rms_norm_eps", "1.0e-06"}},  // that of the layers' norms, which have no key
          .ours = {kNoScaling, kTopkFirst, {"model.moe.output_bias", "true"}, {"model.moa.output_bias", "true"}},
          .tensors = {{"input_layernorm.weight", {"input_layernorm.weight"}},
                      {"post_attention_layernorm.weight", {"post_attention_layernorm.weight"}},
                      {"attention.router.weight", {"self_attention.experts.router.layer.weight"}},
                      {"attention.experts.q_proj", {"self_attention.experts.input_linear.weight"}},
                      {"attention.experts.o_proj", {"self_attention.experts.output_linear.weight"}},
                      {"attention.output_bias", {"self_attention.experts.bias"}},
                      {"attention.kv_proj.weight", {"self_attention.kv_proj.weight"}},
                      {"mlp.router.weight", {"mlp.router.layer.weight"}},
                      {"mlp.experts.up_proj", {"mlp.input_linear.weight"}},
                      {"mlp.experts.down_proj", {"mlp.output_linear.weight"}},
                      {"mlp.output_bias", {"mlp.bias"}}}};
}

}  // namespace

std::span<const Family> families() {
  static const std::vector<Family> all{llama(),     mistral(),   qwen3(),      mixtral(),          olmoe(),
                                       qwen3_moe(), qwen2_moe(), granitemoe(), granitemoeshared(), jetmoe()};
  return all;
}

const Family& find_family(std::string_view model_type, const std::string& where) {
  std::vector<std::string_view> known;
  for (const Family& family : families()) {
    if (family.model_type == model_type) return family;
    known.push_back(family.model_type);
  }
  const bool latent = model_type.starts_with("deepseek");
  fail_user("{}: model type '{}' is not supported{}; known: {}", where, one_line(model_type),
            latent ? " (it has multi-head latent attention)" : "", fmt::join(known, ", "));
}

}  // namespace scatterlm::hf

#include "lib/train/flops.h"

#include "lib/config/load.h"
#include "lib/nn/model.h"
#include "tests/catch.h"

using namespace scatterlm;

namespace {

/// V 11, D 4; GQA 2 heads of width 2 with one key-value head; MoA 3 experts, 2 of a token, one head of width 2;
/// dense F 5; MoE 4 experts, 2 of a token, F 3, shared 2.
ModelConfig tiny(const std::string& layers, int64_t num_layers) {
  ModelConfig config;
  config.vocab_size = 11;
  config.hidden_size = 4;
  config.num_hidden_layers = num_layers;
  config.layers = layers;
  config.attention = {.num_attention_heads = 2, .num_key_value_heads = 1, .head_dim = 2};
  config.moa = {.num_experts = 3, .num_experts_per_tok = 2, .num_key_value_heads = 1, .head_dim = 2};
  config.dense.intermediate_size = 5;
  config.moe = {.num_experts = 4, .num_experts_per_tok = 2, .moe_intermediate_size = 3, .shared_intermediate_size = 2};
  return config;
}

}  // namespace

TEST_CASE("size and FLOPs of a dense layer, counted by hand") {
  const ModelConfig config = tiny("gqa+dense", 1);
  const int64_t attention = (4 + 2 + 2) * 4 + 4 * 4, mlp = 3 * 4 * 5, head = 11 * 4, norms = 3 * 4;
  const nn::ModelSize size = nn::model_size(config);
  REQUIRE(size.total == head + norms + attention + mlp);
  REQUIRE(size.active == size.total);
  REQUIRE(size.active_matmul == head + attention + mlp);
  // 2 heads of width 2 over 16 positions: 12 * 2 * 2 * 16 / 2
  REQUIRE(nn::flops_per_token(config, 16) == 6 * (44 + 48 + 60) + 384);
}

TEST_CASE("size and FLOPs of a routed layer, counted by hand") {
  const ModelConfig config = tiny("moa+moe", 1);
  const int64_t moa_expert = 2 * 2 * 4, moa_rest = 3 * 4 + 2 * 2 * 4, moe_expert = 3 * 4 * 3, moe_rest = 4 * 4 + 3 * 4 * 2;
  const nn::ModelSize size = nn::model_size(config);
  REQUIRE(size.total == 44 + 12 + 3 * moa_expert + moa_rest + 4 * moe_expert + moe_rest);
  REQUIRE(size.active == size.total - moa_expert - 2 * moe_expert);
  REQUIRE(size.active_matmul == size.active - 12);
  // 2 experts of one head of width 2: also 2 query heads
  REQUIRE(nn::flops_per_token(config, 16) == 6.0 * static_cast<double>(size.active_matmul) + 384);
}

TEST_CASE("a sliding window costs the positions that it sees") {
  ModelConfig config = tiny("swa+dense", 1);
  config.attention.window = 4;
  const double matrices = 6 * (44 + 48 + 60);
  REQUIRE(nn::model_size(config).total == nn::model_size(tiny("gqa+dense", 1)).total);
  REQUIRE(nn::flops_per_token(config, 16) == matrices + 12 * 4 * (4 - 4.0 * 4 / 32));
  config.attention.window = 100;
  REQUIRE(nn::flops_per_token(config, 16) == nn::flops_per_token(tiny("gqa+dense", 1), 16));
}

TEST_CASE("biases of experts are no arithmetic") {
  ModelConfig config = tiny("moa+moe", 1);
  const nn::ModelSize without = nn::model_size(config);
  config.moe.bias = true;
  const nn::ModelSize size = nn::model_size(config);
  REQUIRE(size.total == without.total + 4 * (2 * 3 + 4));
  REQUIRE(size.active == without.active + 2 * (2 * 3 + 4));
  REQUIRE(size.active_matmul == without.active_matmul);
}

TEST_CASE("an untied embedding costs memory, not arithmetic") {
  ModelConfig config = tiny("gqa+dense", 1);
  const nn::ModelSize tied = nn::model_size(config);
  config.tie_word_embeddings = false;
  REQUIRE(nn::model_size(config).total == tied.total + 44);
  REQUIRE(nn::model_size(config).active_matmul == tied.active_matmul);
}

TEST_CASE("the size is that of the model's tensors") {
  ModelConfig config = tiny("gqa+dense, moa+moe, gqa+moe, moa+dense", 4);
  config.tie_word_embeddings = GENERATE(true, false);
  const QkNorm qk_norm = GENERATE(QkNorm::kNone, QkNorm::kHead, QkNorm::kFull);
  config.attention.qk_norm = config.moa.qk_norm = qk_norm;
  config.attention.bias = GENERATE(true, false);
  config.dense.activation = config.moe.activation = GENERATE(Activation::kSwiglu, Activation::kGelu);
  config.moe.shared_intermediate_size = GENERATE(0, 2);
  config.moe.bias = config.attention.bias;
  const auto comm = make_single_comm();
  const nn::Model model(config, at::TensorOptions().dtype(at::kFloat));
  allocate(model.units(), *comm);
  REQUIRE(nn::model_size(config).total == model.num_parameters());
}

TEST_CASE("configs/olmoe_1b_7b.yaml has as many parameters as the published model") {
  REQUIRE(nn::model_size(load_config("configs/olmoe_1b_7b.yaml").model).total == 6'919'161'856);
}

TEST_CASE("peaks are known by the whole name of the chip") {
  REQUIRE(peak_bfloat16("NVIDIA H200")->flops == 723e12);
  REQUIRE(peak_bfloat16("NVIDIA A100-SXM4-80GB")->flops == 312e12);
  REQUIRE(peak_bfloat16("NVIDIA L4")->basis == "data sheet");
  REQUIRE(!peak_bfloat16("NVIDIA L40"));
  REQUIRE(!peak_bfloat16("NVIDIA GeForce RTX 4090 Laptop GPU"));
  REQUIRE(!peak_bfloat16(""));
}

#include "lib/hf/tensor_map.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

std::string parts(const char* family, const hf::ModelTensor& tensor) {
  std::string text;
  for (const auto& part : hf::parts_of(tensor, hf::find_family(family, ""))) {
    text += part.name;
    for (const int64_t size : part.shape) text += " " + std::to_string(size);
    text += "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("a tensor of ours is theirs one after another", "[hf]") {
  REQUIRE(parts("llama", {"embed_tokens.weight", {5, 3}, {}}) == "model.embed_tokens.weight 5 3\n");
  REQUIRE(parts("llama", {"layers.11.attention.qkv_proj.weight", {10, 3}, {6, 2, 2}}) ==
          "model.layers.11.self_attn.q_proj.weight 6 3\nmodel.layers.11.self_attn.k_proj.weight 2 3\n"
          "model.layers.11.self_attn.v_proj.weight 2 3\n");
  REQUIRE(parts("llama", {"layers.0.attention.qkv_proj.bias", {10}, {6, 2, 2}}) ==
          "model.layers.0.self_attn.q_proj.bias 6\nmodel.layers.0.self_attn.k_proj.bias 2\n"
          "model.layers.0.self_attn.v_proj.bias 2\n");
  REQUIRE(parts("mixtral", {"layers.0.mlp.experts.up_proj", {2, 8, 3}, {4, 4}}) ==
          "model.layers.0.block_sparse_moe.experts.0.w1.weight 4 3\nmodel.layers.0.block_sparse_moe.experts.0.w3.weight 4 3\n"
          "model.layers.0.block_sparse_moe.experts.1.w1.weight 4 3\nmodel.layers.0.block_sparse_moe.experts.1.w3.weight 4 3\n");
  REQUIRE(parts("olmoe", {"layers.0.mlp.experts.down_proj", {2, 3, 4}, {3}}) ==
          "model.layers.0.mlp.experts.0.down_proj.weight 3 4\nmodel.layers.0.mlp.experts.1.down_proj.weight 3 4\n");
  REQUIRE(parts("granitemoe", {"layers.0.mlp.experts.up_proj", {2, 8, 3}, {4, 4}}) ==
          "model.layers.0.block_sparse_moe.input_linear.weight 2 8 3\n");
}

TEST_CASE("what a family has no tensor for", "[hf]") {
  REQUIRE(parts("llama", {"layers.0.mlp.router.weight", {2, 3}, {}}).empty());
  REQUIRE(parts("llama", {"layers.0.mlp.up_proj.weight", {4, 3}, {4}}).empty());  // no gate
  REQUIRE(parts("llama", {"layers.", {1}, {}}).empty());
  REQUIRE(parts("llama", {"other", {1}, {}}).empty());
}

#include <set>

#include "lib/hf/config_json.h"
#include "lib/util/error.h"
#include "tests/mutate.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

nlohmann::json small(const std::string& model_type) {
  nlohmann::json json{{"model_type", model_type}, {"vocab_size", 300},
                      {"hidden_size", 36},        {"num_hidden_layers", 3},
                      {"num_attention_heads", 3}, {"num_key_value_heads", 1},
                      {"head_dim", 14},           {"intermediate_size", 22},
                      {"num_experts", 4},         {"num_experts_per_tok", 2},
                      {"kv_channels", 10},        {"moe_intermediate_size", 10},
                      {"hidden_act", "silu"},     {"max_position_embeddings", 64}};
  if (!hf::find_family(model_type, "").head_dim) json.erase("head_dim");
  return json;
}

hf::ConfigJson read(const nlohmann::json& json) { return hf::read_config_json(json.dump(), "config.json"); }

std::string error_of(const std::string& text) {
  try {
    hf::read_config_json(text, "config.json");
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

nlohmann::json with(nlohmann::json json, const char* key, nlohmann::json value) {
  json[key] = std::move(value);
  return json;
}

}  // namespace

TEST_CASE("every family holds what it reads", "[hf]") {
  for (const auto& family : hf::families()) {
    INFO(family.model_type);
    const auto [found, config, unknown] = read(small(std::string(family.model_type)));
    REQUIRE(found == &family);
    REQUIRE(hf::cannot_hold(config, family) == std::vector<std::string>());
    REQUIRE(&hf::choose_family(config, "", std::string(family.model_type), "run") == &family);
  }
}

TEST_CASE("config.json of transformers 5 and of 4 say the same", "[hf]") {
  auto four = small("mixtral"), five = four;
  four["rope_theta"] = 5e5;
  four["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};
  five["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 500000}};
  five["rope_theta"] = 1e4;  // rope_parameters counts
  REQUIRE(read(four).config == read(five).config);
  REQUIRE(read(four).config.model.attention.rope_theta == 5e5);
  const auto written = hf::write_config_json(read(four).config, hf::find_family("mixtral", ""), "bfloat16");
  REQUIRE(written["rope_parameters"]["rope_theta"] == 5e5);
  REQUIRE(written["rope_theta"] == 5e5);
  REQUIRE(written["rope_scaling"]["rope_type"] == "linear");
  REQUIRE(written["torch_dtype"] == "bfloat16");
  REQUIRE(written["dtype"] == "bfloat16");
  REQUIRE(read(small("mixtral")).config.model.attention.rope_theta == 1e6);
}

TEST_CASE("what the family does not say stands in the messages", "[hf]") {
  const auto base = small("llama");
  REQUIRE_THAT(error_of(with(base, "hidden_size", -1).dump()),
               ContainsSubstring("config.json: 'hidden_size'") && ContainsSubstring("got '-1'"));
  REQUIRE_THAT(error_of(with(base, "hidden_size", 1e300).dump()), ContainsSubstring("'hidden_size'"));
  REQUIRE_THAT(error_of(with(base, "head_dim", 13).dump()), ContainsSubstring("must be even"));
  REQUIRE_THAT(error_of(with(base, "num_key_value_heads", 2).dump()), ContainsSubstring("must be a multiple of"));
  REQUIRE_THAT(error_of(with(base, "num_hidden_layers", 1000000000).dump()), ContainsSubstring("from 1 to 4096"));
  REQUIRE_THAT(error_of(with(base, "partial_rotary_factor", 0.5).dump()),
               ContainsSubstring("'partial_rotary_factor' must be 1"));
  REQUIRE_THAT(error_of(with(base, "rope_scaling", {{"rope_type", "longrope"}}).dump()),
               ContainsSubstring("\"longrope\", must be one of"));
  REQUIRE_THAT(error_of(with(small("qwen3_moe"), "use_sliding_window", true).dump()),
               ContainsSubstring("'use_sliding_window' is true"));
  REQUIRE_THAT(error_of(with(small("qwen3_moe"), "decoder_sparse_step", 0).dump()),
               ContainsSubstring("'decoder_sparse_step' is 0"));
  REQUIRE_THAT(error_of(with(small("jetmoe"), "rms_norm_eps", 1e-5).dump()), ContainsSubstring("only 1.0e-06 is supported"));
  REQUIRE_THAT(error_of(with(base, "model_type", "deepseek_v2").dump()), ContainsSubstring("multi-head latent attention"));
  REQUIRE_THAT(error_of(with(small("olmoe"), "head_dim", 14).dump()), ContainsSubstring("'head_dim' is 14, must be 12"));
  const auto unknown = read(with(base, "new_trick", 1)).unknown;
  REQUIRE(std::set<std::string>(unknown.begin(), unknown.end()) ==
          std::set<std::string>{"kv_channels", "moe_intermediate_size", "new_trick", "num_experts_per_tok"});
}

TEST_CASE("an export keeps what its import said and our keys do not hold", "[hf]") {
  const auto written = [](const nlohmann::json& imported, int64_t eot, int64_t length) {
    auto config = read(small("llama")).config;
    config.data.eot_token = eot;
    config.train.sequence_length = length;
    auto json = hf::write_config_json(config, hf::find_family("llama", ""), "float32");
    hf::keep_imported(nlohmann::json::parse(imported.dump()), config, json);
    return json;
  };
  auto imported = small("llama");
  imported.update({{"bos_token_id", 1}, {"pad_token_id", 2}, {"eos_token_id", {7, 8}}});
  auto json = written(imported, 7, 32);
  REQUIRE((json["bos_token_id"] == 1 && json["pad_token_id"] == 2 && json["max_position_embeddings"] == 64));
  REQUIRE(json["eos_token_id"] == nlohmann::ordered_json{7, 8});
  json = written(imported, 8, 128);
  REQUIRE((json["eos_token_id"] == 8 && json["max_position_embeddings"] == 128));
  json = written(small("llama"), -1, 64);
  REQUIRE((!json.contains("eos_token_id") && !json.contains("bos_token_id")));
}

TEST_CASE("layers with and without experts", "[hf]") {
  auto json = with(small("qwen3_moe"), "num_hidden_layers", 6);
  REQUIRE(read(json).config.model.layers == "gqa+moe*6");
  json["decoder_sparse_step"] = 2;
  json["mlp_only_layers"] = {1};
  const auto config = read(json).config;
  REQUIRE(config.model.layers == "gqa+dense*3, gqa+moe, gqa+dense, gqa+moe");
  REQUIRE(hf::cannot_hold(config, hf::find_family("qwen3_moe", "")).empty());
  REQUIRE(hf::cannot_hold(config, hf::find_family("mixtral", "")).front().starts_with("model.layers is"));
}

TEST_CASE("a family of experts holds a model whose layers are all dense", "[hf]") {
  const auto& qwen2_moe = hf::find_family("qwen2_moe", "");
  auto config = read(with(with(small("qwen2_moe"), "num_hidden_layers", 1), "mlp_only_layers", {0})).config;
  REQUIRE(config.model.layers == "gqa+dense");
  REQUIRE(hf::cannot_hold(config, qwen2_moe) == std::vector<std::string>());
  config = read(small("qwen2_moe")).config;
  config.model.moe.shared_intermediate_size = 0;
  REQUIRE(hf::cannot_hold(config, qwen2_moe).front().starts_with("model.moe.shared_intermediate_size is 0, would be"));
}

TEST_CASE("mutated config.json: a model, or one line", "[hf][fuzz]") {
  std::mt19937_64 rng(1);
  std::set<std::string> seen;
  for (int64_t i = 0; i < fuzz_count() / 50; ++i) {
    const auto& family = hf::families()[static_cast<size_t>(i) % hf::families().size()];
    const std::string message = error_of(mutate(small(std::string(family.model_type)).dump(), rng));
    if (message.find('\n') != message.npos) REQUIRE(message == "one line");
    seen.insert(message.substr(0, 24));
  }
  REQUIRE(seen.size() > 5);
}

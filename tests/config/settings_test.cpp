// What the reader of settings refuses: files, names of keys, --set options.
#include "tests/config/bad_input.h"

#include "tests/catch.h"

using namespace scatterlm;

TEST_CASE("bad input: the file as a whole", "[config]") {
  const auto input = GENERATE(values<BadInput>({
      {"", {}, "x.yaml: the file is empty, see `scatterlm config keys`"},
      {"# nothing but a comment\n", {}, "x.yaml: the file is empty, see `scatterlm config keys`"},
      {"just text", {}, "x.yaml:1: got 'just text', must be a map of keys, see `scatterlm config keys`"},
      {"- a\n- b\n", {}, "x.yaml:1: got a list, must be a map of keys, see `scatterlm config keys`"},
      {"model: {hidden_size: 8\n", {}, "x.yaml:2: not YAML: end of map flow not found"},
      {"model:\n\thidden_size: 8\n", {}, "x.yaml:2: not YAML: illegal map value"},
      {"model: {hidden_size: 8}\n---\nmodel: {hidden_size: 16}\n", {}, "x.yaml:2: not YAML: a second document begins here"},
      {"? [a, b]\n: 1\n", {}, "x.yaml:1: a key must be text, got a list"},
  }));
  REQUIRE(error_of(input) == input.message);
}

TEST_CASE("bad input: an unknown anchor", "[config]") {  // yaml-cpp 0.8 adds its name
  REQUIRE_THAT(error_of({.text = "model: {hidden_size: *width}\n"}),
               Catch::Matchers::StartsWith("x.yaml:1: not YAML: the referenced anchor is not defined"));
}

TEST_CASE("bad input: unknown and repeated keys", "[config]") {
  const auto input = GENERATE(values<BadInput>({
      {kMinimal + "modle: {hidden_size: 8}\n", {}, "x.yaml:3: unknown key 'modle', did you mean 'model'?"},
      {kMinimal + "model:\n  moe:\n    top_kk: 4\n",
       {},
       "x.yaml:5: unknown key 'model.moe.top_kk', did you mean 'model.moe.num_experts_per_tok'?"},
      {kMinimal + "model:\n  n_layer: 4\n",
       {},
       "x.yaml:4: unknown key 'model.n_layer', did you mean 'model.num_hidden_layers'?"},
      {kMinimal + "model: {router_aux_loss_coef: 0.1}\n",
       {},
       "x.yaml:3: unknown key 'model.router_aux_loss_coef', did you mean 'model.router.aux_loss_coef'?"},
      {kMinimal + "optim:\n  learning_rate: 1e-3\n",
       {},
       "x.yaml:4: unknown key 'optim.learning_rate', did you mean 'optim.lr'?"},
      {kMinimal + "optim:\n  lr: 1e-3\n  wiegth_decay: 0\n",
       {},
       "x.yaml:5: unknown key 'optim.wiegth_decay', did you mean 'optim.weight_decay'?"},
      {kMinimal + "train.batch_size: 8\n",
       {},
       "x.yaml:3: unknown key 'train.batch_size', did you mean 'train.global_batch_tokens'?"},
      {kMinimal + "seed: 1\n", {}, "x.yaml:3: unknown key 'seed', did you mean 'train.seed'?"},
      {kMinimal + "zebra: 1\n", {}, "x.yaml:3: unknown key 'zebra'"},
      {kMinimal + "model:\n  tensor_parallel: 2\n",
       {},
       "x.yaml:4: unknown key 'model.tensor_parallel'; not supported: every rank holds the whole model"},
      {kMinimal + "expert_parallel_size: 8\n",
       {},
       "x.yaml:3: unknown key 'expert_parallel_size'; not supported: every rank holds the whole model"},
      {kMinimal + "train.gradient_accumulation_steps: 8\n",
       {},
       "x.yaml:3: unknown key 'train.gradient_accumulation_steps'; it follows from train.global_batch_tokens, "
       "train.micro_batch_size and the number of ranks"},
      {kMinimal + "model: {moe: {capacity_factor: 1.25}}\n",
       {},
       "x.yaml:3: unknown key 'model.moe.capacity_factor'; no token is ever dropped"},
      {kMinimal + "optim: {lr: 1, lr: 2}\n", {}, "x.yaml:3: key 'optim.lr' is already given at x.yaml:3"},
      {kMinimal + "log: {interval: 5}\nrun: {name: a}\nlog: {interval: 6}\n",
       {},
       "x.yaml:5: key 'log' is already given at x.yaml:3"},
      {kMinimal + "\"multi\\nline\": 1\n", {}, "x.yaml:3: unknown key 'multi\\x0aline'"},
  }));
  REQUIRE(error_of(input) == input.message);
}

TEST_CASE("bad input: --set", "[config]") {
  const auto input = GENERATE(values<BadInput>({
      {kMinimal, {"train.steps"}, "--set train.steps: must be KEY=VALUE, for example --set train.seed=7"},
      {kMinimal, {"=5"}, "--set =5: must be KEY=VALUE, for example --set train.seed=7"},
      {kMinimal, {"run.name="}, "--set run.name=: must be KEY=VALUE, for example --set train.seed=7"},
      {kMinimal, {"train.stepz=5"}, "--set train.stepz=5: unknown key 'train.stepz', did you mean 'train.steps'?"},
      {kMinimal, {"steps.train=5"}, "--set steps.train=5: unknown key 'steps.train', did you mean 'data.train'?"},
      {kMinimal, {"train.steps.more=5"}, "--set train.steps.more=5: unknown key 'train.steps.more'"},
      {kMinimal,
       {"train.steps=five"},
       "--set train.steps=five: key 'train.steps': got 'five', must be an integer from 0 to 1000000000"},
      {kMinimal, {"train.steps=[1"}, "--set train.steps=[1: not YAML: end of sequence flow not found"},
      {kMinimal,
       {"train={steps: 1, steps: 2}"},
       "--set train={steps: 1, steps: 2}: key 'train.steps' is already given at --set train={steps: 1, steps: 2}"},
      {kMinimal, {"optim.betas=[0.9]"}, "--set optim.betas=[0.9]: 'optim.betas: [0.9]' must be two numbers from 0 to below 1"},
      {kMinimal,
       {"model.moe.num_experts=4", "model.moe.num_experts_per_tok=5"},
       "--set model.moe.num_experts_per_tok=5: 'model.moe.num_experts_per_tok: 5' must not be above 'model.moe.num_experts: "
       "4'"},
      {kMinimal + "model: {moe: {num_experts_per_tok: 5}}\n",
       {"model.moe.num_experts=4"},
       "--set model.moe.num_experts=4: 'model.moe.num_experts_per_tok: 5' must not be above 'model.moe.num_experts: 4'"},
      {kMinimal,
       {"run.name=two\nlines", "train.tokens=1"},
       "--set train.tokens=1: 'train.steps: 10' and 'train.tokens: 1' exclude each other, set one of them to 0"},
  }));
  REQUIRE(error_of(input) == input.message);
}

TEST_CASE("later settings win", "[config]") {
  const std::string text = kMinimal + "model: {moe: {num_experts: 4}, layers: moa+moe, moa: {head_dim: 16}}\n";
  REQUIRE(parse_config(text, "x.yaml").model.moe.num_experts == 4);
  REQUIRE(parse_config(text, "x.yaml", {"model.moe.num_experts=5", "model.moe.num_experts=6"}).model.moe.num_experts == 6);
  REQUIRE(parse_config(text, "x.yaml", {"model.moe={num_experts: 7}"}).model.moe.num_experts == 7);
}

TEST_CASE("--set to null takes a key or a group back", "[config]") {
  const std::string text = kMinimal + "model: {moe: {num_experts: 4}, layers: moa+moe, moa: {head_dim: 16}}\n";
  REQUIRE(parse_config(text, "x.yaml", {"model.moe.num_experts=null"}).model.moe.num_experts == MoeConfig().num_experts);
  const Config config = parse_config(text, "x.yaml", {"model.layers=gqa+moe", "model.moa=null"});
  REQUIRE(config.model.moa == MoaConfig());
}

// Values of the wrong type or out of range.
#include "tests/config/bad_input.h"

#include "tests/catch.h"

using namespace scatterlm;

TEST_CASE("bad input: types and ranges", "[config]") {
  const auto input = GENERATE(values<BadInput>({
      {kMinimal + "model: {hidden_size: wide}\n",
       {},
       "x.yaml:3: key 'model.hidden_size': got 'wide', must be an integer from 1 to 1048576"},
      {kMinimal + "model: {hidden_size: 1.5}\n",
       {},
       "x.yaml:3: key 'model.hidden_size': got '1.5', must be an integer from 1 to 1048576"},
      {kMinimal + "model: {hidden_size: 1_000}\n",
       {},
       "x.yaml:3: key 'model.hidden_size': got '1_000', must be an integer from 1 to 1048576"},
      {kMinimal + "model: {hidden_size: \"64\"}\n",
       {},
       "x.yaml:3: key 'model.hidden_size': got the text '64', must be an integer from 1 to 1048576"},
      {kMinimal + "model: {hidden_size: [64]}\n",
       {},
       "x.yaml:3: key 'model.hidden_size': got a list, must be an integer from 1 to 1048576"},
      {kMinimal + "model: {hidden_size: {is: 64}}\n",
       {},
       "x.yaml:3: key 'model.hidden_size': got a map, must be an integer from 1 to 1048576"},
      {kMinimal + "model: {hidden_size: }\n",
       {},
       "x.yaml:3: key 'model.hidden_size': got no value, must be an integer from 1 to 1048576"},
      {kMinimal + "model: {hidden_size: 0}\n",
       {},
       "x.yaml:3: key 'model.hidden_size': got '0', must be an integer from 1 to 1048576"},
      {kMinimal + "model: {hidden_size: 99999999999999999999}\n",
       {},
       "x.yaml:3: key 'model.hidden_size': got '99999999999999999999', must be an integer from 1 to 1048576"},
      {kMinimal + "model: {hidden_size: -0x10}\n",
       {},
       "x.yaml:3: key 'model.hidden_size': got '-0x10', must be an integer from 1 to 1048576"},
      {kMinimal + "model: {tie_word_embeddings: yes}\n",
       {},
       "x.yaml:3: key 'model.tie_word_embeddings': got 'yes', must be true or false"},
      {kMinimal + "model: 5\n", {}, "x.yaml:3: key 'model': got '5', must be a map of keys"},
      {kMinimal + "model:\n", {}, "x.yaml:3: key 'model': got no value, must be a map of keys"},
      {kMinimal + "model:\n  moe:\n    activation: swish\n",
       {},
       "x.yaml:5: key 'model.moe.activation': got 'swish', must be one of swiglu, geglu, reglu, relu2, gelu"},
      {kMinimal + "optim: {lr: .nan}\n", {}, "x.yaml:3: key 'optim.lr': got '.nan', must be a number from 0 to 1000"},
      {kMinimal + "optim: {lr: .inf}\n", {}, "x.yaml:3: key 'optim.lr': got '.inf', must be a number from 0 to 1000"},
      {kMinimal + "optim: {lr: 1e999}\n", {}, "x.yaml:3: key 'optim.lr': got '1e999', must be a number from 0 to 1000"},
      {kMinimal + "optim: {lr: fast}\n", {}, "x.yaml:3: key 'optim.lr': got 'fast', must be a number from 0 to 1000"},
      {kMinimal + "model: {router: {routed_scaling_factor: -1}}\n",
       {},
       "x.yaml:3: key 'model.router.routed_scaling_factor': got '-1', must be auto or a number from 0 to 1000"},
      {kMinimal + "model: {router: {routed_scaling_factor: automatic}}\n",
       {},
       "x.yaml:3: key 'model.router.routed_scaling_factor': got 'automatic', must be auto or a number from 0 to 1000"},
      {kMinimal + "optim: {weight_decay: -0.1}\n",
       {},
       "x.yaml:3: key 'optim.weight_decay': got '-0.1', must be a number from 0 to 10"},
      {kMinimal + "optim: {betas: 0.9}\n", {}, "x.yaml:3: key 'optim.betas': got '0.9', must be a list of numbers from 0 to 1"},
      {kMinimal + "optim:\n  betas:\n    - 0.9\n    - 1.5\n",
       {},
       "x.yaml:6: key 'optim.betas[1]': got '1.5', must be a number from 0 to 1"},
      {kMinimal + "run: {name: }\n", {}, "x.yaml:3: key 'run.name': got no value, must be text"},
      {kMinimal + "run: {name: \"a\\0b\"}\n",
       {},
       "x.yaml:3: key 'run.name': got the text 'a\\x00b', must be text without a zero byte"},
      {kMinimal + "run: {name: [a]}\n", {}, "x.yaml:3: key 'run.name': got a list, must be text"},
      {"train: {steps: 1}\ndata:\n  train:\n    - a.bin\n    - {path: b.bin, wieght: 2}\n",
       {},
       "x.yaml:5: unknown key 'data.train[1].wieght', did you mean 'data.train[1].weight'?"},
      {"train: {steps: 1}\ndata:\n  train:\n    - a.bin\n    - [b.bin]\n",
       {},
       "x.yaml:5: key 'data.train[1]': got a list, must be a path or {path, weight}"},
      {"train: {steps: 1}\ndata:\n  train: {path: a.bin}\n",
       {},
       "x.yaml:3: key 'data.train': got a map, must be a path, a list of paths, or a list of {path, weight}"},
      {"train: {steps: 1}\ndata:\n  train:\n    - {path: a.bin, weight: -1}\n",
       {},
       "x.yaml:4: key 'data.train[0].weight': got '-1', must be a number from 1e-12 to 1000000000000"},
  }));
  REQUIRE(error_of(input) == input.message);
}

TEST_CASE("numbers as YAML's core schema has them", "[config]") {
  const auto [text, value] = GENERATE(table<std::string, int64_t>(
      {{"64", 64}, {"+64", 64}, {"0x40", 64}, {"0o100", 64}, {"064", 64}, {"64.0", 64}, {"6.4e1", 64}, {"1e6", 1000000}}));
  REQUIRE(parse_config(kMinimal, "x.yaml", {"model.hidden_size=" + text}).model.hidden_size == value);
  REQUIRE(error_of({kMinimal, {"model.hidden_size=-" + text}, ""}) != "no error");
  REQUIRE(error_of({kMinimal, {"data.eot_token=+-1"}, ""}) ==
          "--set data.eot_token=+-1: key 'data.eot_token': got '+-1', must be an integer from -1 to 16777216");
  const auto not_a_number = GENERATE("+-1", "0x", "0x-1", "1e", "--1", "inf", "nan", "1,5", "e1");
  REQUIRE_THROWS_WITH(parse_config(kMinimal, "x.yaml", {std::string("optim.lr=") + not_a_number}),
                      ContainsSubstring("must be a number from 0 to 1000"));
}

TEST_CASE("every form of a value", "[config]") {
  const Config config = parse_config(R"(
run: {name: "2024"}
model: {tie_word_embeddings: False, moe: {activation: "relu2"}, router: {routed_scaling_factor: 2.5}}
data:
  train: [a.bin, {path: b c.bin, weight: 2.5}]
  validation: v.bin
train: {steps: 1e3, deterministic: true, eval_tasks: [a.jsonl, b c.bin]}
optim: {betas: [.8, 0.99], lr: 1}
)",
                                     "x.yaml");
  REQUIRE(config.run.name == "2024");
  REQUIRE(config.model.tie_word_embeddings == false);
  REQUIRE(config.model.moe.activation == Activation::kRelu2);
  REQUIRE(config.model.router.routed_scaling_factor == 2.5);
  REQUIRE_FALSE(
      parse_config("data: {train: a.bin}\ntrain: {steps: 1}\nmodel: {router: {routed_scaling_factor: auto}}", "y.yaml")
          .model.router.routed_scaling_factor);
  REQUIRE((config.data.train == std::vector<BlendEntry>{{"a.bin", 1}, {"b c.bin", 2.5}}));
  REQUIRE((config.data.validation == std::vector<BlendEntry>{{"v.bin", 1}}));
  REQUIRE(config.train.steps == 1000);
  REQUIRE(config.train.eval_tasks == std::vector<std::string>{"a.jsonl", "b c.bin"});
  REQUIRE(parse_config(kMinimal, "y.yaml", {"train.eval_tasks=a.bin"}).train.eval_tasks == std::vector<std::string>{"a.bin"});
  REQUIRE(config.train.deterministic == Toggle::kTrue);
  REQUIRE(config.optim.betas == std::vector<double>{0.8, 0.99});
  REQUIRE(config.optim.lr == 1);
}

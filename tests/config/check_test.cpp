// Keys that contradict each other, and keys without effect.
#include "tests/config/bad_input.h"

#include "tests/catch.h"

using namespace scatterlm;

TEST_CASE("bad input: keys that contradict each other: the model", "[config]") {
  const auto input = GENERATE(values<BadInput>({
      {kMinimal + "model:\n  layers: gqa+mlp\n",
       {},
       "x.yaml:4: key 'model.layers': 'gqa+mlp' is not ATTENTION+MLP or ATTENTION+MLP*N with ATTENTION one of gqa, moa, swa, MLP "
       "one of dense, moe and N from 1 to 4096"},
      {kMinimal + "model:\n  layers: gqa+moe*0\n",
       {},
       "x.yaml:4: key 'model.layers': 'gqa+moe*0' is not ATTENTION+MLP or ATTENTION+MLP*N with ATTENTION one of gqa, moa, swa, MLP "
       "one of dense, moe and N from 1 to 4096"},
      {kMinimal + "model:\n  layers: gqa+moe*2,\n",
       {},
       "x.yaml:4: key 'model.layers': '' is not ATTENTION+MLP or ATTENTION+MLP*N with ATTENTION one of gqa, moa, swa, MLP one of "
       "dense, moe and N from 1 to 4096"},
      {kMinimal + "model:\n  layers: \"\"\n",
       {},
       "x.yaml:4: key 'model.layers': '' is not ATTENTION+MLP or ATTENTION+MLP*N with ATTENTION one of gqa, moa, swa, MLP one of "
       "dense, moe and N from 1 to 4096"},
      {kMinimal + "model:\n  layers: gqa+moe*4096, gqa+moe\n", {}, "x.yaml:4: key 'model.layers': more than 4096 layers"},
      {kMinimal + "model:\n  num_hidden_layers: 3\n  layers: gqa+moe*2\n",
       {},
       "x.yaml:5: 'model.layers: gqa+moe*2' has 2 layers, 'model.num_hidden_layers: 3' must be the same or left out"},
      {kMinimal + "model:\n  attention:\n    head_dim: 31\n",
       {},
       "x.yaml:5: 'model.attention.head_dim: 31' must be even: rotary embedding turns pairs"},
      {kMinimal + "model:\n  attention: {num_attention_heads: 6}\n",
       {},
       "x.yaml:4: 'model.attention.num_attention_heads: 6' must be a multiple of 'model.attention.num_key_value_heads: 4'"},
      {kMinimal + "model:\n  attention:\n    bias: true\n    qkv_bias: true\n",
       {},
       "x.yaml:6: 'model.attention.bias: true' already has what 'model.attention.qkv_bias: true' asks for; remove one of them"},
      {kMinimal + "model:\n  rope_scaling:\n    type: llama3\n    low_freq_factor: 4\n",
       {},
       "x.yaml:6: 'model.rope_scaling.low_freq_factor: 4' must be below 'model.rope_scaling.high_freq_factor: 4'"},
      {kMinimal + "model:\n  rope_scaling:\n    type: yarn\n    beta_slow: 33\n",
       {},
       "x.yaml:6: 'model.rope_scaling.beta_slow: 33' must be below 'model.rope_scaling.beta_fast: 32'"},
      {kMinimal + "model:\n  layers: moa+moe\n  moa: {head_dim: 31}\n",
       {},
       "x.yaml:5: 'model.moa.head_dim: 31' must be even: rotary embedding turns pairs"},
      {kMinimal + "model:\n  layers: moa+moe\n  moa:\n    num_experts_per_tok: 9\n",
       {},
       "x.yaml:6: 'model.moa.num_experts_per_tok: 9' must not be above 'model.moa.num_experts: 8'"},
      {kMinimal + "model:\n  moe:\n    num_experts: 4\n    num_experts_per_tok: 5\n",
       {},
       "x.yaml:6: 'model.moe.num_experts_per_tok: 5' must not be above 'model.moe.num_experts: 4'"},
      {kMinimal + "model:\n  router: {topk_before_softmax: true, score: sigmoid}\n",
       {},
       "x.yaml:4: 'model.router.topk_before_softmax: true' needs 'model.router.score: softmax'"},
      {kMinimal + "model:\n  router:\n    norm_topk_prob: false\n    topk_before_softmax: true\n",
       {},
       "x.yaml:6: 'model.router.topk_before_softmax: true' needs 'model.router.norm_topk_prob: true': these gates always sum "
       "to 1"},
      {kMinimal + "model: {vocab_size: 100}\n",
       {},
       "x.yaml:3: 'data.tokenizer: bytes' needs at least 256 tokens, got 'model.vocab_size: 100'"},
      {kMinimal + "model: {vocab_size: 256}\n",
       {"data.eot_token=256"},
       "--set data.eot_token=256: 'data.eot_token: 256' must be below 'model.vocab_size: 256'"},
  }));
  REQUIRE(error_of(input) == input.message);
}

TEST_CASE("bad input: keys that contradict each other: data and training", "[config]") {
  const auto input = GENERATE(values<BadInput>({
      {"train: {steps: 1}\n", {}, "x.yaml: 'data.train' must name token files, for example: data/headers/train.bin"},
      {"train: {steps: 1}\ndata: {train: []}\n",
       {},
       "x.yaml:2: 'data.train' must name token files, for example: data/headers/train.bin"},
      {"train: {steps: 1}\ndata:\n  train: \"\"\n", {}, "x.yaml:3: 'data.train': every entry needs a path that is not empty"},
      {"train: {steps: 1}\ndata:\n  train:\n    - {weight: 2}\n",
       {},
       "x.yaml:3: 'data.train': every entry needs a path that is not empty"},
      {"train: {steps: 1}\ndata:\n  train:\n    - {path: a.bin, weight: 0}\n",
       {},
       "x.yaml:4: key 'data.train[0].weight': got '0', must be a number from 1e-12 to 1000000000000"},
      {"train: {steps: 1}\ndata:\n  train: a.bin\n  validation: [{path: b.bin, weight: 2}]\n",
       {},
       "x.yaml:4: 'data.validation' takes no weights: every token counts once"},
      {kMinimal,
       {"data.tokenizer=\"\""},
       "--set data.tokenizer=\"\": 'data.tokenizer' must be bytes, or a tokenizer's file or folder"},
      {"data: {train: a.bin}\n",
       {},
       "x.yaml: 'train.steps' or 'train.tokens' must be above 0: one of them says how long to train"},
      {kMinimal,
       {"train.tokens=1000000"},
       "--set train.tokens=1000000: 'train.steps: 10' and 'train.tokens: 1000000' exclude each other, set one of them to 0"},
      {"data: {train: a.bin}\ntrain: {tokens: 4095}\n",
       {},
       "x.yaml:2: 'train.tokens: 4095' must be at least one step, 'train.global_batch_tokens: 4096'"},
      {kMinimal,
       {"train.sequence_length=100"},
       "--set train.sequence_length=100: 'train.global_batch_tokens: 4096' must be a multiple of 'train.sequence_length: 100'"},
      {kMinimal,
       {"train.micro_batch_size=3"},
       "--set train.micro_batch_size=3: 'train.micro_batch_size: 3' must divide the 16 sequences of "
       "'train.global_batch_tokens: 4096'"},
      {kMinimal + "run: {name: a/b}\n", {}, "x.yaml:3: 'run.name: a/b' must be the name of one folder, without '/'"},
      {kMinimal + "run: {dir: \"\"}\n", {}, "x.yaml:3: 'run.dir' must not be empty, for example: runs"},
      {kMinimal + "optim: {betas: [0.9, 1]}\n", {}, "x.yaml:3: 'optim.betas: [0.9, 1]' must be two numbers from 0 to below 1"},
      {kMinimal + "optim: {warmup_steps: 11}\n",
       {},
       "x.yaml:3: 'optim.warmup_steps: 11' must fit into the 10 steps of the run"},
      {kMinimal + "log: {trace_step: 2}\n",
       {},
       "x.yaml:3: 'log.trace_step: 2' must be 0 or from 3 on: two steps before it prepare the trace"},
      {kMinimal + "log: {trace_step: 11}\n", {}, "x.yaml:3: 'log.trace_step: 11' must be one of the 10 steps of the run"},
      {kMinimal + "optim: {schedule: wsd}\n", {}, "x.yaml:3: 'optim.schedule: wsd' needs 'optim.decay_steps' above 0"},
      {kMinimal + "optim: {schedule: wsd, decay_steps: 8, warmup_steps: 3}\n",
       {},
       "x.yaml:3: 'optim.warmup_steps: 3' and 'optim.decay_steps: 8' must fit into the 10 steps of the run"},
      {kMinimal + "optim: {state_dtype: bfloat16}\n",
       {"train.dtype=float32"},
       "--set train.dtype=float32: 'optim.state_dtype: bfloat16' needs 'train.dtype: bfloat16', got float32"},
      {kMinimal + "optim: {lr: 0.1}\n",
       {"train.grad_dtype=bfloat16", "train.dtype=float32"},
       "--set train.dtype=float32: 'train.grad_dtype: bfloat16' needs 'train.dtype: bfloat16', got float32"},
  }));
  REQUIRE(error_of(input) == input.message);
}

TEST_CASE("bad input: keys without effect", "[config]") {
  const auto input = GENERATE(values<BadInput>({
      {kMinimal + "model: {moa: {head_dim: 16}}\n",
       {},
       "x.yaml:3: key 'model.moa.head_dim' has no effect: no moa layer in model.layers: gqa+moe*4; remove it, or add --set "
       "model.moa=null"},
      {kMinimal + "model: {layers: moa+moe, attention: {bias: true}}\n",
       {},
       "x.yaml:3: key 'model.attention.bias' has no effect: no gqa or swa layer in model.layers: moa+moe; remove it, or add --set "
       "model.attention=null"},
      {kMinimal + "model: {layers: gqa+dense, attention: {window: 8}}\n",
       {},
       "x.yaml:3: key 'model.attention.window' has no effect: no swa layer in model.layers: gqa+dense; remove it, or add --set "
       "model.attention.window=null"},
      {kMinimal + "model: {layers: gqa+dense, moe: {num_experts: 4}}\n",
       {},
       "x.yaml:3: key 'model.moe.num_experts' has no effect: no moe layer in model.layers: gqa+dense; remove it, or add --set "
       "model.moe=null"},
      {kMinimal + "model: {dense: {intermediate_size: 4}}\n",
       {},
       "x.yaml:3: key 'model.dense.intermediate_size' has no effect: no dense layer in model.layers: gqa+moe*4; remove it, or "
       "add --set model.dense=null"},
      {kMinimal + "model:\n  layers: gqa+dense\n  router:\n    z_loss_coef: 0\n",
       {},
       "x.yaml:6: key 'model.router.z_loss_coef' has no effect: no moa or moe layer in model.layers: gqa+dense; remove it, or "
       "add --set model.router=null"},
      {kMinimal + "model: {router: {balance: bias, aux_loss_coef: 0.01}}\n",
       {},
       "x.yaml:3: key 'model.router.aux_loss_coef' has no effect: model.router.balance is bias; remove it, or add --set "
       "model.router.aux_loss_coef=null"},
      {kMinimal + "model: {router: {bias_update_rate: 0.01}}\n",
       {},
       "x.yaml:3: key 'model.router.bias_update_rate' has no effect: model.router.balance is aux; remove it, or add --set "
       "model.router.bias_update_rate=null"},
      {kMinimal + "model: {rope_scaling: {factor: 4}}\n",
       {},
       "x.yaml:3: key 'model.rope_scaling.factor' has no effect: model.rope_scaling.type is none; remove it, or add --set "
       "model.rope_scaling.factor=null"},
      {kMinimal + "model: {moe: {shared_gate: true}}\n",
       {},
       "x.yaml:3: key 'model.moe.shared_gate' has no effect: model.moe.shared_intermediate_size is 0; remove it, or add --set "
       "model.moe.shared_gate=null"},
      {kMinimal + "model: {layers: moa+dense, router: {rounding: nearest}}\n",
       {},
       "x.yaml:3: key 'model.router.rounding' has no effect: no moe layer in model.layers: moa+dense; remove it, or add --set "
       "model.router.rounding=null"},
      {kMinimal,
       {"train.eval_interval=10"},
       "--set train.eval_interval=10: key 'train.eval_interval' has no effect: neither data.validation nor train.eval_tasks is set; "
       "remove it, or add --set train.eval_interval=null"},
      {kMinimal,
       {"train.eval_tasks=t.bin", "train.eval_interval=10", "train.eval_tokens=10"},
       "--set train.eval_tokens=10: key 'train.eval_tokens' has no effect: data.validation is not set; remove it, or add --set "
       "train.eval_tokens=null"},
      {kMinimal,
       {"train.eval_tokens=10"},
       "--set train.eval_tokens=10: key 'train.eval_tokens' has no effect: data.validation is not set; remove it, or add --set "
       "train.eval_tokens=null"},
      {kMinimal + "optim: {decay_steps: 5}\n",
       {},
       "x.yaml:3: key 'optim.decay_steps' has no effect: optim.schedule is cosine; remove it, or add --set "
       "optim.decay_steps=null"},
      {kMinimal + "optim: {min_lr_ratio: 0.1, schedule: constant}\n",
       {},
       "x.yaml:3: key 'optim.min_lr_ratio' has no effect: optim.schedule is constant; remove it, or add --set "
       "optim.min_lr_ratio=null"},
      {kMinimal,
       {"optim.min_lr_ratio=0.1", "optim.schedule=constant"},
       "--set optim.min_lr_ratio=0.1: key 'optim.min_lr_ratio' has no effect: optim.schedule is constant; remove it, or add "
       "--set optim.min_lr_ratio=null"},
      {kMinimal + "optim: {decay_embeddings: true, weight_decay: 0}\n",
       {},
       "x.yaml:3: key 'optim.decay_embeddings' has no effect: optim.weight_decay is 0; remove it, or add --set "
       "optim.decay_embeddings=null"},
  }));
  REQUIRE(error_of(input) == input.message);
}

TEST_CASE("what an option switches off in the file needs no option of its own", "[config]") {
  const std::string text =
      "data: {train: a.bin, validation: b.bin}\n"
      "train: {steps: 10, eval_interval: 5, eval_tokens: 6}\n"
      "model: {layers: moa+moe, moa: {head_dim: 16}, moe: {num_experts: 4}, router: {aux_loss_coef: 0.5}}\n";
  const std::string off = GENERATE("data.validation=null", "data.validation=[]");
  const Config without = parse_config(text, "x.yaml", {off});
  REQUIRE(without.data.validation.empty());
  REQUIRE(without.train.eval_interval == 0);
  REQUIRE(without.train.eval_tokens == 0);
  REQUIRE(without.model.moa.head_dim == 16);
  const Config dense = parse_config(text, "x.yaml", {"model.layers=gqa+dense"});
  REQUIRE(dense.model.moa == MoaConfig());
  REQUIRE(dense.model.router == RouterConfig());
  REQUIRE(dense.train.eval_interval == 5);
}

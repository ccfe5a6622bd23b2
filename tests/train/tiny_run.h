#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lib/train/checkpointing.h"
#include "lib/train/open_checkpoint.h"
#include "lib/train/trainer.h"
#include "lib/util/error.h"

namespace scatterlm {

/// A run of a tiny model on random tokens, in a folder of its own.
struct TinyRun {
  explicit TinyRun(const std::function<void(Config&)>& change = {}, Comm* comm = nullptr) {
    std::filesystem::create_directories(folder / "run");
    std::ofstream file(folder / "train.raw", std::ios::binary);
    for (int i = 0; i < 4000; i++) file.put(static_cast<char>((i * 7919 + i / 3) % 50)).put(0);
    file.close();
    config.model.vocab_size = 300;  // bytes is the only tokenizer that a configuration can name
    config.model.hidden_size = 16;
    config.model.num_hidden_layers = 2;
    config.model.layers = "moa+moe, gqa+dense";
    config.model.attention = {.num_attention_heads = 2, .num_key_value_heads = 2, .head_dim = 8};
    config.model.moa = {.num_experts = 4, .num_experts_per_tok = 2, .num_key_value_heads = 1, .head_dim = 8};
    config.model.moe = {.num_experts = 4, .num_experts_per_tok = 2, .moe_intermediate_size = 8};
    config.model.dense = {.intermediate_size = 16};
    config.data.train = {{(folder / "train.raw").string(), 1}};
    config.data.raw_dtype = TokenWidth::kUint16;
    config.train.steps = 20;
    config.train.sequence_length = 16;
    config.train.global_batch_tokens = 128;
    if (change) change(config);
    own_comm = make_single_comm();
    loader.emplace(config.data, 300, 16, config.train.seed, 0, 1);
    state.emplace(config, at::kFloat, comm ? *comm : *own_comm, *loader);
    state->optimizer->initialise(config.train.seed);
    trainer.emplace(*state);
  }
  ~TinyRun() { std::filesystem::remove_all(folder); }

  /// All weights, optimiser state and router biases, to compare.
  std::vector<at::Tensor> tensors() {
    std::vector<at::Tensor> all;
    for (auto& shard : state->optimizer->shards()) {
      all.push_back(shard.weights.clone());
      for (const auto& kept : shard.state) all.push_back(kept.values.clone());
    }
    for (auto* router : state->model.routers()) {
      if (router->bias.defined()) all.push_back(router->bias.clone());
    }
    return all;
  }
  at::Tensor weight(const std::string& name) {
    for (const auto& unit : state->model.units()) {
      for (const auto& p : unit->params()) {
        if (p.name == name) return p.tensor.detach();
      }
    }
    fail("no weight {}", name);
  }

  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("scatterlm_run_{}", reinterpret_cast<uintptr_t>(this));
  Config config;
  std::unique_ptr<Comm> own_comm;
  std::optional<Loader> loader;
  std::optional<TrainingState> state;
  std::optional<Trainer> trainer;
};

inline bool all_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return x.equal(y); });
}

}  // namespace scatterlm

// A model small enough for finite differences.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "lib/nn/model.h"
#include "lib/train/router_losses.h"

namespace scatterlm::test {

inline ModelConfig tiny_config() {
  ModelConfig c;
  c.vocab_size = 11;
  c.hidden_size = 12;
  c.num_hidden_layers = 2;
  c.layers = "moa+moe, gqa+dense";
  c.initializer_range = 0.4;  // large enough that every gradient is well above rounding
  c.attention = {.num_attention_heads = 4, .num_key_value_heads = 2, .head_dim = 4};
  c.moa = {.num_experts = 3, .num_experts_per_tok = 2, .num_key_value_heads = 2, .head_dim = 4};
  c.dense = {.intermediate_size = 10};
  c.moe = {.num_experts = 4, .num_experts_per_tok = 2, .moe_intermediate_size = 6};
  c.router.aux_loss_coef = 0.1;
  c.router.z_loss_coef = 0.05;
  return c;
}

/// What an optimiser does with a new model: initial values, and buffers for gradients.
inline void initialise(nn::Model& model, int64_t seed) {
  for (const auto& unit : model.units()) {
    unit->flat_params().copy_(unit->initial_values(seed, 0, unit->size()));
    unit->attach_grads(unit->make_grads());
  }
}

/// Zeros would not show what adds a bias.
inline void randomise_biases(nn::Model& model) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{8});
  for (const auto& unit : model.units())
    for (const auto& p : unit->params())
      if (p.name.ends_with("bias")) p.tensor.detach().normal_(0, 1, generator);
}

inline Batch random_batch(int64_t sequences, int64_t length, int64_t vocab, uint64_t seed = 3) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto tokens = at::randint(vocab, {sequences, length + 1}, generator, at::kLong);
  return {tokens.narrow(1, 0, length).contiguous(), tokens.narrow(1, 1, length).contiguous(), std::nullopt};
}

/// Mean cross-entropy + router losses of one step that is this batch; `losses` has its sums.
inline at::Tensor objective(nn::Model& model, const Batch& batch, Comm& comm, RouterLosses& losses,
                            Recompute recompute = Recompute::kNone) {
  const auto tokens = static_cast<double>(batch.target_BS.numel());
  std::vector<nn::RouterChoice> choices;
  nn::Context context{.router_choices = &choices, .recompute = recompute};
  const auto ce = model.cross_entropy_sum(batch, context) / tokens;
  losses.begin_step();
  const auto loss = losses.add(std::move(choices), tokens, tokens, comm);
  return loss.defined() ? ce + loss : ce;
}

inline at::Tensor objective(nn::Model& model, const Batch& batch, Comm& comm) {
  RouterLosses losses(model);
  return objective(model, batch, comm, losses);
}

}  // namespace scatterlm::test

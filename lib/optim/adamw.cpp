#include "lib/optim/adamw.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace scatterlm {

void AdamWElements::add(size_t index, const Optimizer::Shard& shard, ElementRange elements, const at::Tensor& exp_avg,
                        const at::Tensor& exp_avg_sq) {
  if (elements.size() == 0) return;
  const int64_t begin = elements.begin - shard.elements.begin;
  const int64_t decay_end = std::clamp(shard.unit->decay_end(), elements.begin, elements.end);
  pieces_.push_back({index,
                     begin,
                     {.weights = shard.weights.narrow(0, begin, elements.size()),
                      .exp_avg = exp_avg,
                      .exp_avg_sq = exp_avg_sq,
                      .grads = {},
                      .params = shard.params.narrow(0, begin, elements.size()),
                      .num_decayed = decay_end - elements.begin}});
}

void AdamWElements::update(const std::vector<at::Tensor>& shard_grads, double lr, const at::Tensor& grad_scale,
                           const at::Tensor& skip, const at::Tensor& updates) const {
  const ops::AdamWStep step{lr,   config_.betas[0], config_.betas[1], config_.eps, config_.weight_decay, grad_scale,
                            skip, updates};
  for (const auto& piece : pieces_) {
    auto tensors = piece.tensors;
    tensors.grads = shard_grads[piece.index].narrow(0, piece.begin, tensors.weights.numel());
    ops::adamw(tensors, step);
  }
}

AdamW::AdamW(const OptimConfig& config, const std::vector<std::unique_ptr<ParameterUnit>>& units, Comm& comm,
             const Sharding& sharding)
    : Optimizer(config, units, comm, sharding), elements_(config) {
  auto& shards = mutable_shards();
  for (size_t i = 0; i < shards.size(); ++i) {
    const auto elements = shards[i].elements;
    const auto exp_avg = add_state(shards[i], kExpAvg, elements), exp_avg_sq = add_state(shards[i], kExpAvgSq, elements);
    elements_.add(i, shards[i], elements, exp_avg, exp_avg_sq);
  }
}

void AdamW::update(const Update& u) { elements_.update(u.grads, u.lr, u.grad_scale, u.skip, updates()); }

}  // namespace scatterlm

#include "lib/optim/adamw.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace scatterlm {

void AdamWElements::add(size_t index, const Optimizer::Shard& shard, ElementRange elements, const at::Tensor& exp_avg,
                        const at::Tensor& exp_avg_sq) {
  const int64_t border = std::clamp(shard.unit->decay_end(), elements.begin, elements.end);
  const auto add_piece = [&](std::vector<Piece>& pieces, ElementRange part) {
    if (part.size() == 0) return;
    const auto narrow = [&](const at::Tensor& flat, int64_t begin) { return flat.narrow(0, part.begin - begin, part.size()); };
    pieces.push_back({index, part.begin - shard.elements.begin, narrow(shard.weights, shard.elements.begin),
                      narrow(exp_avg, elements.begin), narrow(exp_avg_sq, elements.begin)});
  };
  add_piece(decayed_, {elements.begin, border});
  add_piece(others_, {border, elements.end});
}

void AdamWElements::update(const std::vector<at::Tensor>& shard_grads, double lr, const at::Tensor& grad_scale,
                           const at::Tensor& skip, const at::Tensor& updates) const {
  for (const auto* pieces : {&decayed_, &others_}) {
    if (pieces->empty()) continue;
    std::vector<at::Tensor> weights, grads, exp_avgs, exp_avg_sqs;
    for (const auto& piece : *pieces) {
      weights.push_back(piece.weights);
      grads.push_back(shard_grads[piece.index].narrow(0, piece.begin, piece.weights.numel()).to(piece.weights.scalar_type()));
      exp_avgs.push_back(piece.exp_avg);
      exp_avg_sqs.push_back(piece.exp_avg_sq);
    }
    const std::vector<at::Tensor> steps(weights.size(), updates);
    at::_fused_adamw_(weights, grads, exp_avgs, exp_avg_sqs, {}, steps, lr, config_.betas[0], config_.betas[1],
                      pieces == &decayed_ ? config_.weight_decay : 0.0, config_.eps, /*amsgrad=*/false, /*maximize=*/false,
                      grad_scale, skip);
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

#include "lib/optim/adamw.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace scatterlm {
namespace {

struct RangeOfOneLr {
  ElementRange elements;
  double lr_scale;
};

/// `elements` of a unit in order, cut where the learning rate changes; the padding behind a tensor belongs to it.
std::vector<RangeOfOneLr> ranges_of_one_lr(const ParameterUnit& unit, ElementRange elements, double router_lr_scale) {
  std::vector<RangeOfOneLr> ranges;
  for (const auto& p : unit.params()) {
    const double lr_scale = p.lr_group == LrGroup::kRouter ? router_lr_scale : 1;
    const int64_t begin = std::max(p.offset, elements.begin);
    if (begin >= elements.end) break;
    if (ranges.empty() || begin == elements.begin) {
      ranges = {{{elements.begin, elements.end}, lr_scale}};
    } else if (ranges.back().lr_scale != lr_scale) {
      ranges.back().elements.end = begin;
      ranges.push_back({{begin, elements.end}, lr_scale});
    }
  }
  return ranges;
}

}  // namespace

void AdamWElements::add(size_t index, const Optimizer::Shard& shard, ElementRange elements, const at::Tensor& exp_avg,
                        const at::Tensor& exp_avg_sq) {
  for (const auto& [range, lr_scale] : ranges_of_one_lr(*shard.unit, elements, config_.router_lr_scale)) {
    const auto of = [&](const at::Tensor& x, int64_t first) { return x.narrow(0, range.begin - first, range.size()); };
    const int64_t decay_end = std::clamp(shard.unit->decay_end(), range.begin, range.end);
    pieces_.push_back({index,
                       range.begin - shard.elements.begin,
                       lr_scale,
                       {.weights = of(shard.weights, shard.elements.begin),
                        .exp_avg = of(exp_avg, elements.begin),
                        .exp_avg_sq = of(exp_avg_sq, elements.begin),
                        .grads = {},
                        .params = of(shard.params, shard.elements.begin),
                        .num_decayed = decay_end - range.begin}});
  }
}

void AdamWElements::update(const std::vector<at::Tensor>& shard_grads, double lr, const at::Tensor& grad_scale,
                           const at::Tensor& skip, const at::Tensor& updates) const {
  ops::AdamWStep step{lr, config_.betas[0], config_.betas[1], config_.eps, config_.weight_decay, grad_scale, skip, updates};
  for (const auto& piece : pieces_) {
    step.lr = lr * piece.lr_scale;
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

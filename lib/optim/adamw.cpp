#include "lib/optim/adamw.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace scatterlm {
namespace {

at::Tensor own_slice(const Unit& unit, const at::Tensor& flat) {
  return flat.narrow(0, unit.shard_begin(), unit.shard_end() - unit.shard_begin());
}

}  // namespace

AdamW::AdamW(const OptimConfig& config, const std::vector<std::unique_ptr<Unit>>& units, int64_t seed) : config_(config) {
  const auto dtype = config.state_dtype == StateDtype::kBfloat16 ? at::kBFloat16 : at::kFloat;
  for (const auto& unit : units) {
    const auto own = own_slice(*unit, unit->flat_params());
    auto weights = own;
    if (own.scalar_type() != dtype) {
      weights = unit->initial_values(seed, unit->shard_begin(), unit->shard_end()).to(own.device(), dtype);
    }
    shards_.push_back({unit.get(), weights, at::zeros_like(weights), at::zeros_like(weights)});
  }
  updates_ = at::zeros({}, shards_.front().weights.options().dtype(at::kFloat));
}

void AdamW::step(double lr, const at::Tensor& grad_scale, const at::Tensor& skip) {
  updates_ += 1 - skip.squeeze();
  update(true, lr, grad_scale, skip);
  update(false, lr, grad_scale, skip);
  write_parameters();
}

void AdamW::update(bool decayed, double lr, const at::Tensor& grad_scale, const at::Tensor& skip) {
  std::vector<at::Tensor> weights, grads, exp_avgs, exp_avg_sqs;
  for (auto& shard : shards_) {
    const int64_t size = shard.weights.numel();
    const int64_t border = std::clamp(shard.unit->decay_end() - shard.unit->shard_begin(), int64_t{0}, size);
    const int64_t begin = decayed ? 0 : border, length = decayed ? border : size - border;
    if (length == 0) continue;
    auto part = [&](const at::Tensor& flat) { return flat.narrow(0, begin, length); };
    weights.push_back(part(shard.weights));
    grads.push_back(part(own_slice(*shard.unit, shard.unit->flat_grads())).to(shard.weights.scalar_type()));
    exp_avgs.push_back(part(shard.exp_avg));
    exp_avg_sqs.push_back(part(shard.exp_avg_sq));
  }
  if (weights.empty()) return;
  const std::vector<at::Tensor> steps(weights.size(), updates_);
  at::_fused_adamw_(weights, grads, exp_avgs, exp_avg_sqs, {}, steps, lr, config_.betas[0], config_.betas[1],
                    decayed ? config_.weight_decay : 0.0, config_.eps, /*amsgrad=*/false, /*maximize=*/false, grad_scale, skip);
}

void AdamW::write_parameters() {
  for (auto& shard : shards_) {
    auto own = own_slice(*shard.unit, shard.unit->flat_params());
    if (own.data_ptr() != shard.weights.data_ptr()) own.copy_(shard.weights);
  }
}

void gather_parameters(const std::vector<std::unique_ptr<Unit>>& units, Comm& comm) {
  for (const auto& unit : units) comm.all_gather(own_slice(*unit, unit->flat_params()), unit->flat_params());
}

at::Tensor global_grad_norm(const std::vector<std::unique_ptr<Unit>>& units, Comm& comm) {
  std::vector<at::Tensor> norms;
  for (const auto& unit : units) norms.push_back(at::linalg_vector_norm(own_slice(*unit, unit->flat_grads())));
  auto squares = at::stack(norms).square().sum().view({1});
  comm.all_reduce(squares);
  return squares.sqrt();
}

}  // namespace scatterlm

#include "lib/optim/adamw.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace scatterlm {

AdamW::AdamW(const OptimConfig& config, const std::vector<std::unique_ptr<ParameterUnit>>& units, Comm& comm, bool share)
    : config_(config), comm_(comm), share_(share) {
  const auto dtype = config.state_dtype == DataType::kBfloat16 ? at::kBFloat16 : at::kFloat;
  for (const auto& unit : units) {
    const auto params = share ? unit->own_slice(unit->flat_params()) : unit->flat_params();
    const auto weights = params.scalar_type() == dtype ? params : at::zeros_like(params, dtype);
    const int64_t begin = share ? unit->slice_begin() : 0;
    shards_.push_back({unit.get(), begin, begin + params.numel(), weights, at::zeros_like(weights), at::zeros_like(weights)});
  }
  updates_ = at::zeros({}, shards_.front().weights.options().dtype(at::kFloat));
}

void AdamW::initialise(int64_t seed) {
  for (auto& shard : shards_) shard.weights.copy_(shard.unit->initial_values(seed, shard.begin, shard.end));
  publish();
}

void AdamW::step(const std::vector<at::Tensor>& grads, double lr, const at::Tensor& grad_scale, const at::Tensor& skip) {
  if (copied_) copied_->block(c10::impl::VirtualGuardImpl(updates_.device().type()).getStream(updates_.device()));
  copied_.reset();
  updates_ += 1 - skip.squeeze();
  for (const bool decayed : {true, false}) update(grads, decayed, {lr, grad_scale, skip});
  publish();
}

void AdamW::update(const std::vector<at::Tensor>& unit_grads, bool decayed, const Update& how) {
  std::vector<at::Tensor> weights, grads, exp_avgs, exp_avg_sqs;
  for (size_t i = 0; i < shards_.size(); ++i) {
    auto& shard = shards_[i];
    const int64_t size = shard.end - shard.begin;
    const int64_t border = std::clamp(shard.unit->decay_end() - shard.begin, int64_t{0}, size);
    const int64_t begin = decayed ? 0 : border, length = decayed ? border : size - border;
    if (length == 0) continue;
    auto part = [&](const at::Tensor& flat) { return flat.narrow(0, begin, length); };
    weights.push_back(part(shard.weights));
    grads.push_back(part(unit_grads[i]).to(shard.weights.scalar_type()));
    exp_avgs.push_back(part(shard.exp_avg));
    exp_avg_sqs.push_back(part(shard.exp_avg_sq));
  }
  if (weights.empty()) return;
  const std::vector<at::Tensor> steps(weights.size(), updates_);
  at::_fused_adamw_(weights, grads, exp_avgs, exp_avg_sqs, {}, steps, how.lr, config_.betas[0], config_.betas[1],
                    decayed ? config_.weight_decay : 0.0, config_.eps, /*amsgrad=*/false, /*maximize=*/false, how.grad_scale,
                    how.skip);
}

void AdamW::publish() {
  for (auto& shard : shards_) {
    auto params = shard.unit->flat_params().narrow(0, shard.begin, shard.end - shard.begin);
    if (params.data_ptr() != shard.weights.data_ptr()) params.copy_(shard.weights);
    if (share_) shard.unit->gather_params(comm_);
  }
}

}  // namespace scatterlm

#include "lib/optim/optimizer.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lib/optim/adamw.h"
#include "lib/optim/muon.h"

namespace scatterlm {

Optimizer::Optimizer(const OptimConfig& config, const std::vector<std::unique_ptr<ParameterUnit>>& units, Comm& comm,
                     const Sharding& sharding)
    : comm_(comm), sharding_(sharding) {
  const auto dtype = config.state_dtype == DataType::kBfloat16 ? at::kBFloat16 : at::kFloat;
  for (const auto& unit : units) {
    const auto elements = sharding.updated(*unit);
    const auto params = unit->flat_params().narrow(0, elements.begin, elements.size());
    const auto weights = params.scalar_type() == dtype ? params : at::zeros_like(params, dtype);
    shards_.push_back({unit.get(), elements, params, weights, {}});
  }
  updates_ = at::zeros({}, shards_.front().weights.options().dtype(at::kFloat));
}

at::Tensor Optimizer::add_state(Shard& shard, const std::string& name, ElementRange elements) {
  shard.state.push_back({name, elements, at::zeros({elements.size()}, shard.weights.options())});
  return shard.state.back().values;
}

void Optimizer::initialise(int64_t seed) {
  for (auto& shard : shards_) {
    shard.weights.copy_(shard.unit->initial_values(seed, shard.elements.begin, shard.elements.end));
  }
  publish();
}

void Optimizer::step(const std::vector<at::Tensor>& grads, double lr, const at::Tensor& grad_scale, const at::Tensor& skip) {
  if (copied_) copied_->block(c10::impl::VirtualGuardImpl(updates_.device().type()).getStream(updates_.device()));
  copied_.reset();
  updates_ += 1 - skip.squeeze();
  update({grads, lr, grad_scale, skip});
  gather();
}

void Optimizer::publish() {
  for (auto& shard : shards_) {
    if (shard.params.data_ptr() != shard.weights.data_ptr()) shard.params.copy_(shard.weights);
  }
  gather();
}

void Optimizer::gather() {
  if (!sharding_.state) return;
  for (auto& shard : shards_) shard.unit->gather_params(comm_);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config, const std::vector<std::unique_ptr<ParameterUnit>>& units,
                                          Comm& comm, const Sharding& sharding) {
  switch (config.name) {
    case OptimizerName::kMuon: return std::make_unique<Muon>(config, units, comm, sharding);
    case OptimizerName::kAdamw: break;
  }
  return std::make_unique<AdamW>(config, units, comm, sharding);
}

}  // namespace scatterlm

#include "lib/nn/kv_cache.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/device/ceil_div.h"

namespace scatterlm::nn {
namespace {

constexpr int64_t kCapacityStep = 256;

/// Positions of a layer in a buffer with room for `capacity` of them. What is not filled yet is finite, as the op wants it.
void grow(at::Tensor& held, const at::Tensor& k, int64_t capacity, int64_t length) {
  auto grown = at::zeros({k.size(0), capacity, k.size(2), k.size(3)}, k.options());
  if (held.defined()) grown.narrow(1, 0, length).copy_(held.narrow(1, 0, length));
  held = grown;
}

}  // namespace

KvCache::KvCache(int64_t num_layers, at::Device device)
    : position_(at::zeros({1}, at::TensorOptions().dtype(at::kLong).device(device))),
      layers_(static_cast<size_t>(num_layers)) {}

bool KvCache::reserve(int64_t positions) {
  if (positions <= capacity_) return false;
  capacity_ = kernels::ceil_div(std::max(positions, 2 * capacity_), kCapacityStep) * kCapacityStep;
  angles_.clear();
  return true;
}

ops::KvCacheLayer& KvCache::layer(int64_t index, const at::Tensor& k) {
  auto& layer = layers_.at(static_cast<size_t>(index));
  if (!layer.k.defined() || layer.k.size(1) < capacity_) {
    grow(layer.k, k, capacity_, length_);
    grow(layer.v, k, capacity_, length_);
  }
  return layer;
}

std::pair<at::Tensor, at::Tensor> KvCache::angles(RopeTable& table) {
  auto& angles = angles_[&table];
  if (!angles.first.defined()) angles = table.at(0, capacity_);
  return angles;
}

void KvCache::set_length(int64_t length) {
  length_ = length;
  position_.fill_(length);
}

}  // namespace scatterlm::nn

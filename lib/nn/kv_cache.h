// Keys and values of earlier positions, for generation.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <utility>
#include <vector>

#include "lib/nn/rope_table.h"
#include "lib/ops/decode_attention.h"

namespace scatterlm::nn {

/// Keys and values of all layers, of `length` positions, with room for `capacity`. The first pass over the model takes a prompt
/// of any length, the following ones take one position of each sequence. Such a step reads its position on the device and has
/// fixed shapes and addresses until the capacity changes, so that it can be recorded as a CUDA graph.
class KvCache {
 public:
  KvCache(int64_t num_layers, at::Device device);

  int64_t length() const { return length_; }
  /// [1] int64 on the device: the length, as the next step reads it.
  const at::Tensor& position() const { return position_; }

  /// Makes room for `positions` in all. Returns whether addresses change: the capacity is then a multiple of 256, and at least
  /// twice the one before.
  bool reserve(int64_t positions);
  /// After a pass over `count` positions of each sequence: they are held.
  void advance(int64_t count) { set_length(length_ + count); }
  /// Forgets all positions, for as many other sequences.
  void clear() { set_length(0); }

  /// The layer's cache for keys and values as k [B, S, Hkv, P], with room for all positions.
  ops::KvCacheLayer& layer(int64_t index, const at::Tensor& k);
  /// cos, sin [capacity, P/2], which stay where they are for as long as the capacity.
  std::pair<at::Tensor, at::Tensor> angles(RopeTable& table);

 private:
  void set_length(int64_t length);

  int64_t length_ = 0, capacity_ = 0;
  at::Tensor position_;
  std::vector<ops::KvCacheLayer> layers_;
  std::map<const RopeTable*, std::pair<at::Tensor, at::Tensor>> angles_;
};

}  // namespace scatterlm::nn

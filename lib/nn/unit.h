// Parameters in flat buffers. A unit is what is reduced, updated, gathered and saved together: one layer, the embedding, or the
// head.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lib/dist/comm.h"

namespace scatterlm {

/// Initial values of one tensor: normal with this deviation, or constant.
struct Init {
  float std = 0;
  float constant = 0;
  static Init normal(double std) { return {static_cast<float>(std), 0}; }
  static Init ones() { return {0, 1}; }
  static Init zeros() { return {}; }
};

enum class Decay { kNo, kYes };

/// A tensor inside a unit.
struct Param {
  std::string name;
  std::vector<int64_t> shape;
  int64_t numel = 0;
  Init init;
  Decay decay = Decay::kYes;
  int64_t offset = 0;  ///< first element in the flat buffer
  at::Tensor tensor;   ///< leaf; a view of the flat parameters, its grad a view of the flat gradients
};

/// One flat parameter buffer and one flat fp32 gradient buffer. Tensors with weight decay come first, so that the optimiser
/// sees at most two ranges; each tensor starts at a multiple of 64 elements and the unit is padded to a multiple of lcm(ranks,
/// 128).
class Unit {
 public:
  Unit(std::string name, at::TensorOptions options) : name_(std::move(name)), options_(options) {}

  /// Declares a tensor. It has storage after allocate().
  at::Tensor param(const std::string& name, std::vector<int64_t> shape, Init init, Decay decay);

  /// Lays out and allocates; every tensor becomes a view and requires a gradient. fp64 parameters get fp64 gradients.
  void allocate(const Comm& comm);

  const std::string& name() const { return name_; }
  const std::vector<Param>& params() const { return params_; }
  at::Tensor flat_params() const { return flat_params_; }
  at::Tensor flat_grads() const { return flat_grads_; }

  /// This rank's slice of the flat buffers.
  int64_t shard_begin() const { return shard_begin_; }
  int64_t shard_end() const { return shard_end_; }
  /// Elements before this one belong to tensors with weight decay.
  int64_t decay_end() const { return decay_end_; }

  /// Initial values of flat elements begin..end-1 in fp32 on the CPU; a function of (seed, tensor names) alone.
  at::Tensor initial_values(int64_t seed, int64_t begin, int64_t end) const;

 private:
  std::string name_;
  at::TensorOptions options_;
  std::vector<Param> params_;
  at::Tensor flat_params_, flat_grads_;
  int64_t shard_begin_ = 0, shard_end_ = 0, decay_end_ = 0;
};

}  // namespace scatterlm

#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <utility>

#include "lib/nn/rope_scaling.h"
#include "lib/ops/rope.h"

namespace scatterlm::nn {

/// Cosines and sines of one head width and base, shared by layers and grown on demand.
class RopeTable {
 public:
  RopeTable(ScaledRope rope, at::Device device) : rope_(std::move(rope)), device_(device) {}

  /// cos, sin [count, P/2] for positions first .. first+count-1.
  std::pair<at::Tensor, at::Tensor> at(int64_t first, int64_t count) {
    if (!cos_.defined() || cos_.size(0) < first + count) {
      std::tie(cos_, sin_) = ops::rope_tables(2 * (first + count), rope_.frequencies, rope_.factor, device_);
    }
    return {cos_.narrow(0, first, count), sin_.narrow(0, first, count)};
  }

 private:
  ScaledRope rope_;
  at::Device device_;
  at::Tensor cos_, sin_;
};

/// The tables of one model: layers of equal head width and base share one.
class RopeTables {
 public:
  RopeTables(const RopeScalingConfig& scaling, at::Device device) : scaling_(scaling), device_(device) {}

  std::shared_ptr<RopeTable> get(int64_t head_dim, double theta) {
    auto& table = tables_[{head_dim, theta}];
    if (!table) table = std::make_shared<RopeTable>(scaled_rope(head_dim, theta, scaling_), device_);
    return table;
  }

 private:
  RopeScalingConfig scaling_;
  at::Device device_;
  std::map<std::pair<int64_t, double>, std::shared_ptr<RopeTable>> tables_;
};

}  // namespace scatterlm::nn

#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <utility>

#include "lib/ops/rope.h"

namespace scatterlm::nn {

/// Cosines and sines of one head width and base, shared by layers and grown on demand.
class RopeTable {
 public:
  RopeTable(int64_t head_dim, double theta, at::Device device) : head_dim_(head_dim), theta_(theta), device_(device) {}

  /// cos, sin [count, P/2] for positions first .. first+count-1.
  std::pair<at::Tensor, at::Tensor> at(int64_t first, int64_t count) {
    if (!cos_.defined() || cos_.size(0) < first + count) {
      std::tie(cos_, sin_) = ops::rope_tables(2 * (first + count), head_dim_, theta_, device_);
    }
    return {cos_.narrow(0, first, count), sin_.narrow(0, first, count)};
  }

 private:
  int64_t head_dim_;
  double theta_;
  at::Device device_;
  at::Tensor cos_, sin_;
};

/// The tables of one model: layers of equal head width and base share one.
class RopeTables {
 public:
  explicit RopeTables(at::Device device) : device_(device) {}

  std::shared_ptr<RopeTable> get(int64_t head_dim, double theta) {
    auto& table = tables_[{head_dim, theta}];
    if (!table) table = std::make_shared<RopeTable>(head_dim, theta, device_);
    return table;
  }

 private:
  at::Device device_;
  std::map<std::pair<int64_t, double>, std::shared_ptr<RopeTable>> tables_;
};

}  // namespace scatterlm::nn

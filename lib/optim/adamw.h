// AdamW. Loshchilov and Hutter, arXiv 1711.05101.
#pragma once
#include <vector>

#include "lib/ops/adamw.h"
#include "lib/optim/optimizer.h"

namespace scatterlm {

/// Elements of shards that AdamW updates; the optimiser that it belongs to keeps their moments.
class AdamWElements {
 public:
  explicit AdamWElements(const OptimConfig& config) : config_(config) {}

  /// Elements of the shard number `index` from now on, with their first and second moment of as many elements.
  void add(size_t index, const Optimizer::Shard& shard, ElementRange elements, const at::Tensor& exp_avg,
           const at::Tensor& exp_avg_sq);

  /// One update; arguments as of Optimizer::step, and `updates` [] fp32, with this one.
  void update(const std::vector<at::Tensor>& grads, double lr, const at::Tensor& grad_scale, const at::Tensor& skip,
              const at::Tensor& updates) const;

 private:
  struct Piece {
    size_t index;   ///< of the shard
    int64_t begin;  ///< in the shard
    double lr_scale;
    ops::AdamWTensors tensors;  ///< without gradients
  };

  OptimConfig config_;
  std::vector<Piece> pieces_;
};

class AdamW final : public Optimizer {
 public:
  AdamW(const OptimConfig& config, const std::vector<std::unique_ptr<ParameterUnit>>& units, Comm& comm,
        const Sharding& sharding);

  static constexpr const char* kExpAvg = "exp_avg";       ///< first moment
  static constexpr const char* kExpAvgSq = "exp_avg_sq";  ///< second moment

 private:
  void update(const Update& update) override;

  AdamWElements elements_;
};

}  // namespace scatterlm

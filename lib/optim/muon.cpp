#include "lib/optim/muon.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "lib/ops/muon.h"
#include "lib/ops/newton_schulz.h"

namespace scatterlm {
namespace {

/// Root mean square of an update over the learning rate, about that of AdamW (arXiv 2502.16982, section 2.2).
constexpr double kUpdateRms = 0.2;
/// Elements that are updated, or orthogonalised, at a time: temporary tensors have no more, or are of one matrix.
constexpr int64_t kElementsAtATime = int64_t{1} << 26;

ElementRange overlap(ElementRange a, ElementRange b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// Elements of a unit that follow each other and are updated alike, with the padding behind them.
struct Run {
  ElementRange elements;
  bool matrices;
  Decay decay;
};

std::vector<Run> runs_of(const ParameterUnit& unit) {
  std::vector<Run> runs;
  for (const auto& p : unit.params()) {
    const bool matrices = !p.matrix_rows.empty();
    if (runs.empty() || runs.back().matrices != matrices || runs.back().decay != p.decay) {
      if (!runs.empty()) runs.back().elements.end = p.offset;
      runs.push_back({{p.offset, unit.size()}, matrices, p.decay});
    }
  }
  return runs;
}

/// Matrices of one shape: [n, rows, cols], the first of which is at this element of the unit.
struct Stack {
  int64_t begin;
  at::Tensor matrices;
};

/// The matrices of a tensor, as few stacks as possible.
std::vector<Stack> stacks_of(const Param& p, const at::Tensor& inputs) {
  const int64_t cols = p.shape.back(), rows = p.matrix_rows.front();
  if (std::ranges::count(p.matrix_rows, rows) == std::ssize(p.matrix_rows))
    return {{p.offset, inputs.narrow(0, p.offset, p.numel).view({-1, rows, cols})}};
  const auto experts = inputs.narrow(0, p.offset, p.numel).view({-1, p.shape[p.shape.size() - 2], cols});
  std::vector<Stack> stacks;
  int64_t row = 0;
  for (const int64_t height : p.matrix_rows) {
    stacks.push_back({p.offset + row * cols, experts.narrow(1, row, height)});
    row += height;
  }
  return stacks;
}

}  // namespace

Muon::Muon(const OptimConfig& config, const std::vector<std::unique_ptr<ParameterUnit>>& units, Comm& comm,
           const Sharding& sharding)
    : Optimizer(config, units, comm, sharding), config_(config), others_(config) {
  int64_t largest = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    auto& shard = mutable_shards()[i];
    MatrixUnit matrix_unit{i, {}};
    bool has_matrices = false;
    for (const auto& run : runs_of(*units[i])) {
      has_matrices |= run.matrices;
      const auto own = overlap(run.elements, shard.elements);
      if (own.size() == 0) continue;
      if (run.matrices) {
        add_pieces(matrix_unit, own, run.decay);
      } else {
        const auto exp_avg = add_state(shard, AdamW::kExpAvg, own), exp_avg_sq = add_state(shard, AdamW::kExpAvgSq, own);
        others_.add(i, shard, own, exp_avg, exp_avg_sq);
      }
    }
    if (!has_matrices) continue;
    matrix_units_.push_back(std::move(matrix_unit));
    largest = std::max(largest, units[i]->size());
  }
  const auto device = updates().device();
  const auto options = at::TensorOptions().device(device).dtype(device.is_cuda() ? at::kBFloat16 : at::kFloat);
  buffer_ = sharding.state && largest > 0 ? comm.gather_buffer(largest, options) : at::zeros({largest}, options);
}

void Muon::add_pieces(MatrixUnit& unit, ElementRange elements, Decay decay) {
  auto& shard = mutable_shards()[unit.index];
  const auto momentum = add_state(shard, "momentum", elements);
  for (int64_t begin = elements.begin; begin < elements.end; begin += kElementsAtATime) {
    const int64_t size = std::min(kElementsAtATime, elements.end - begin);
    unit.pieces.push_back({{begin, begin + size},
                           decay == Decay::kYes ? config_.weight_decay : 0.0,
                           shard.params.narrow(0, begin - shard.elements.begin, size),
                           shard.weights.narrow(0, begin - shard.elements.begin, size),
                           momentum.narrow(0, begin - elements.begin, size)});
  }
}

void Muon::update(const Update& u) {
  others_.update(u.grads, u.lr, u.grad_scale, u.skip, updates());
  for (const auto& matrix_unit : matrix_units_) {
    const auto& shard = shards()[matrix_unit.index];
    const auto inputs = buffer_.narrow(0, 0, shard.unit->size());
    update_momentum(matrix_unit, u, inputs);
    if (sharding().state) comm().wait(comm().all_gather(inputs));
    for (const auto& p : shard.unit->params()) {
      if (!p.matrix_rows.empty()) orthogonalise(p, shard.elements, inputs);
    }
    update_weights(matrix_unit, u, inputs);
  }
}

void Muon::update_momentum(const MatrixUnit& unit, const Update& u, const at::Tensor& inputs) {
  const int64_t shard_begin = shards()[unit.index].elements.begin;
  for (const auto& piece : unit.pieces) {
    const auto own = piece.elements;
    ops::muon_momentum({.grads = u.grads[unit.index].narrow(0, own.begin - shard_begin, own.size()),
                        .momentum = piece.momentum,
                        .updates = inputs.narrow(0, own.begin, own.size()),
                        .beta = config_.momentum},
                       u.grad_scale, u.skip);
  }
}

/// In place, of the matrices of one tensor that have an element of `own`.
void Muon::orthogonalise(const Param& p, ElementRange own, const at::Tensor& inputs) const {
  for (const auto& [begin, matrices] : stacks_of(p, inputs)) {
    const int64_t count = matrices.size(0), rows = matrices.size(1), cols = matrices.size(2), stride = matrices.stride(0);
    const auto is_own = [&](int64_t i) {
      return overlap({begin + i * stride, begin + i * stride + rows * cols}, own).size() > 0;
    };
    int64_t first = 0, last = count;
    while (first < last && !is_own(first)) ++first;
    while (first < last && !is_own(last - 1)) --last;
    const double scale = kUpdateRms * std::sqrt(static_cast<double>(std::max(rows, cols)));
    const int64_t at_a_time = std::max<int64_t>(1, kElementsAtATime / (rows * cols));
    for (int64_t i = first; i < last; i += at_a_time)
      ops::newton_schulz_(matrices.narrow(0, i, std::min(at_a_time, last - i)), config_.newton_schulz_steps, scale);
  }
}

void Muon::update_weights(const MatrixUnit& unit, const Update& u, const at::Tensor& orthogonal) {
  for (const auto& piece : unit.pieces) {
    ops::muon_apply({.updates = orthogonal.narrow(0, piece.elements.begin, piece.elements.size()),
                     .weights = piece.weights,
                     .params = piece.params,
                     .lr = u.lr,
                     .weight_decay = piece.weight_decay},
                    u.skip);
  }
}

}  // namespace scatterlm

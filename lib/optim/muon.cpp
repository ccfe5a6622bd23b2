#include "lib/optim/muon.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "lib/optim/newton_schulz.h"

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
  const auto skipped = u.skip.to(at::kBool);
  const auto factor = at::where(skipped, at::ones_like(u.skip), at::full_like(u.skip, config_.momentum));
  const int64_t shard_begin = shards()[unit.index].elements.begin;
  for (const auto& piece : unit.pieces) {
    const auto grad = u.grads[unit.index].narrow(0, piece.elements.begin - shard_begin, piece.elements.size());
    auto input = at::where(skipped, 0, grad / u.grad_scale);
    const auto momentum = piece.momentum.to(at::kFloat);
    momentum.mul_(factor).add_(input);
    if (!momentum.is_same(piece.momentum)) piece.momentum.copy_(momentum);
    inputs.narrow(0, piece.elements.begin, piece.elements.size()).copy_(input.add_(momentum, config_.momentum));
  }
}

/// In place, of the matrices of one tensor that have an element of `own`.
void Muon::orthogonalise(const Param& p, ElementRange own, const at::Tensor& inputs) const {
  const int64_t cols = p.shape.back(), stacked = p.shape[p.shape.size() - 2], experts = p.numel / (stacked * cols);
  const auto whole = inputs.narrow(0, p.offset, p.numel).view({experts, stacked, cols});
  int64_t row = 0;
  for (const int64_t rows : p.matrix_rows) {
    const auto is_own = [&](int64_t expert) {
      const int64_t begin = p.offset + (expert * stacked + row) * cols;
      return overlap({begin, begin + rows * cols}, own).size() > 0;
    };
    int64_t first = 0, last = experts;
    while (first < last && !is_own(first)) ++first;
    while (first < last && !is_own(last - 1)) --last;
    const double scale = kUpdateRms * std::sqrt(static_cast<double>(std::max(rows, cols)));
    const int64_t at_a_time = std::max<int64_t>(1, kElementsAtATime / (rows * cols));
    for (int64_t expert = first; expert < last; expert += at_a_time) {
      const auto matrices = whole.narrow(0, expert, std::min(at_a_time, last - expert)).narrow(1, row, rows);
      matrices.copy_(newton_schulz(matrices, config_.newton_schulz_steps).mul_(scale));
    }
    row += rows;
  }
}

void Muon::update_weights(const MatrixUnit& unit, const Update& u, const at::Tensor& orthogonal) {
  const auto rate = (1 - u.skip) * u.lr;  // [1] fp32, so that what follows is computed in fp32 whatever the state's dtype
  for (const auto& piece : unit.pieces) {
    const auto step = orthogonal.narrow(0, piece.elements.begin, piece.elements.size()) * rate;
    const auto kept = piece.weights * (1 - rate * piece.weight_decay);
    piece.weights.copy_(kept - step);
    if (piece.params.data_ptr() != piece.weights.data_ptr()) piece.params.copy_(piece.weights);
  }
}

}  // namespace scatterlm

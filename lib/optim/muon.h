// Muon for the matrices of layers, AdamW for everything else. Jordan et al., "Muon: An optimizer for hidden layers in neural
// networks", 2024, https://kellerjordan.github.io/posts/muon; scale and weight decay of Liu et al., "Muon is scalable for LLM
// training", arXiv 2502.16982, section 2.2, with which one learning rate serves both optimisers. For each matrix W with the
// clipped gradient G:
//
//   M = momentum * M + G
//   U = G + momentum * M                                                      (Nesterov)
//   W = W - lr * (0.2 * sqrt(max(rows, cols)) * newton_schulz(U) + weight_decay * W)
//
// A matrix is one linear map, not one tensor: queries, keys and values, the gate and the up half, and each expert have singular
// values of their own, so each is orthogonalised alone. Params say what they hold (Param::matrix_rows).
//
// A rank keeps the momentum of its own elements, like every other state, and its slice cuts matrices. So U is gathered over the
// ranks, one unit at a time, in a buffer of the largest unit; each rank orthogonalises the matrices that its slice touches, and
// uses its own elements of the result. A matrix on a border is computed by both ranks. Newton-Schulz runs, and U travels, in
// bfloat16 on a GPU and in float32 on a CPU.
#pragma once
#include <vector>

#include "lib/optim/adamw.h"
#include "lib/optim/optimizer.h"

namespace scatterlm {

class Muon final : public Optimizer {
 public:
  Muon(const OptimConfig& config, const std::vector<std::unique_ptr<ParameterUnit>>& units, Comm& comm,
       const Sharding& sharding);

 private:
  /// Elements of a shard that belong to matrices, so few that what is made of them for an update is small.
  struct Piece {
    ElementRange elements;
    double weight_decay;
    at::Tensor params, weights, momentum;
  };
  /// A unit with matrices, on every rank. A rank whose slice has none of their elements has no pieces.
  struct MatrixUnit {
    size_t index;  ///< of the shard
    std::vector<Piece> pieces;
  };

  void add_pieces(MatrixUnit& unit, ElementRange elements, Decay decay);
  void update(const Update& update) override;
  void update_momentum(const MatrixUnit& unit, const Update& update, const at::Tensor& inputs);
  void orthogonalise(const Param& param, ElementRange own, const at::Tensor& inputs) const;
  void update_weights(const MatrixUnit& unit, const Update& update, const at::Tensor& orthogonal);

  OptimConfig config_;
  AdamWElements others_;
  std::vector<MatrixUnit> matrix_units_;
  at::Tensor buffer_;  ///< [largest unit with matrices]: U of a whole unit, then what ops::newton_schulz_ made of it
};

}  // namespace scatterlm

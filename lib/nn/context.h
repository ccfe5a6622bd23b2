// What a forward pass needs besides its input.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "lib/config/enums.h"
#include "lib/nn/kv_cache.h"
#include "lib/ops/documents.h"

namespace scatterlm::nn {

/// What one router chose in a forward pass, for losses and statistics (lib/train/router_losses.h).
struct RouterChoice {
  at::Tensor counts_E, prob_sum_E, lse_sq_sum;  ///< of top-k: lib/ops/router.h
  at::Tensor rounded;  ///< [2] fp64: pairs dropped and pairs filled; undefined where nothing was rounded
};

struct Context {
  int64_t layer = 0;                        ///< index of the layer that runs
  std::optional<at::Tensor> document_BS;    ///< attention stays inside a document: lib/data/batch.h
  std::optional<ops::Documents> documents;  ///< the same for the kernels of every layer; Model::forward makes it
  KvCache* cache = nullptr;                 ///< generation; has room for the positions of this pass
  /// In a step of generation: cos, sin [1, P/2] of its position, which the first layer of each table reads.
  std::map<const RopeTable*, std::pair<at::Tensor, at::Tensor>> step_angles;
  /// Training: each router appends its choice, in layer order, and rounds its routing if configured so. Without it the pass
  /// is one of evaluation or generation: plain top-k, and nothing is kept.
  std::vector<RouterChoice>* router_choices = nullptr;
  /// Training: what is computed again in the backward pass instead of being kept (lib/nn/recompute.h).
  Recompute recompute = Recompute::kNone;
};

}  // namespace scatterlm::nn

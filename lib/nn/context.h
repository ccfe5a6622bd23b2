// What a forward pass needs besides its input.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "lib/config/enums.h"
#include "lib/ops/documents.h"

namespace scatterlm::nn {

/// Keys and values of earlier positions, one entry per layer.
struct KvCache {
  struct Layer {
    at::Tensor k, v;  ///< [B, positions reserved, Hkv, P]
  };
  std::vector<Layer> layers;
  int64_t length = 0;  ///< positions held
};

/// What one router chose in a forward pass, for losses and statistics (lib/train/router_losses.h).
struct RouterChoice {
  at::Tensor counts_E, prob_sum_E, lse_sq_sum;  ///< of top-k: lib/ops/router.h
  at::Tensor rounded;  ///< [2] fp64: pairs dropped and pairs filled; undefined where nothing was rounded
};

struct Context {
  int64_t layer = 0;                        ///< index of the layer that runs
  std::optional<at::Tensor> document_BS;    ///< attention stays inside a document: lib/data/batch.h
  std::optional<ops::Documents> documents;  ///< the same for the kernels of every layer; Model::forward makes it
  KvCache* cache = nullptr;                 ///< generation
  /// Training: each router appends its choice, in layer order, and rounds its routing if configured so. Without it the pass
  /// is one of evaluation or generation: plain top-k, and nothing is kept.
  std::vector<RouterChoice>* router_choices = nullptr;
  /// Training: what is computed again in the backward pass instead of being kept (lib/nn/recompute.h).
  Recompute recompute = Recompute::kNone;
};

}  // namespace scatterlm::nn

// What a forward pass needs beside its input.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "lib/distributed/comm.h"
#include "lib/ops/router.h"

namespace scatterlm::nn {

/// Keys and values of earlier positions, one entry per layer.
struct KvCache {
  struct Layer {
    at::Tensor k, v;  ///< [B, positions reserved, Hkv, P]
  };
  std::vector<Layer> layers;
  int64_t length = 0;  ///< positions held
};

/// Only while training: what the routers' losses and statistics need of the whole optimiser step.
struct RouterStep {
  Comm& comm;
  double tokens_of_step;  ///< N: tokens of the step over all ranks and micro-batches
  double tokens_so_far;   ///< the same up to and including this micro-batch
  at::Tensor loss = {};  ///< auxiliary losses times their coefficients, means over the routers, for this micro-batch; undefined
                         ///< if there is none

  /// What a router chose in this micro-batch.
  struct Choice {
    ops::RouterOutput output;
    at::Tensor rounded;  ///< [2] fp64: pairs dropped and pairs filled; undefined unless `rounding: nearest`
  };
  std::vector<Choice> choices = {};  ///< of each router, in the order in which they run
};

struct Context {
  int64_t layer = 0;                      ///< index of the layer that runs
  std::optional<at::Tensor> document_BS;  ///< attention stays inside a document
  std::optional<at::Tensor> mask;         ///< what that means for every layer; Model::forward makes it
  KvCache* cache = nullptr;               ///< generation
  RouterStep* router_step = nullptr;      ///< training; without it routers add no loss and count nothing
};

}  // namespace scatterlm::nn

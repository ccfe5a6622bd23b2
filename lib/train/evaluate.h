#pragma once
#include <functional>

#include "lib/data/loader.h"
#include "lib/distributed/comm.h"
#include "lib/nn/model.h"

namespace scatterlm {

struct Evaluation {
  double loss = 0;     ///< mean cross-entropy, nats per token
  int64_t tokens = 0;  ///< targets counted
};

/// One pass over the reader, `num_sequences` at a time; ranks take turns, and all make the same number of forward
/// passes. Routers count nothing and add no loss.
/// `progress` is told the targets read so far.
Evaluation evaluate(nn::Model& model, EvalReader& reader, int64_t num_sequences, Comm& comm,
                    const std::function<void(int64_t)>& progress = {});

}  // namespace scatterlm

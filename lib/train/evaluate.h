#pragma once
#include <functional>
#include <optional>

#include "lib/data/loader.h"
#include "lib/distributed/comm.h"
#include "lib/nn/model.h"
#include "lib/tokenizer/tokenizer.h"

namespace scatterlm {

struct Evaluation {
  double loss = 0;     ///< mean cross-entropy, nats per token
  int64_t tokens = 0;  ///< targets counted
  /// Sum of the cross-entropy / ln 2 / bytes of the targets' text; none where a target is no token of the tokenizer.
  std::optional<double> bits_per_byte;
};

/// Bytes of text of each token, [V] fp64. Special tokens, such as end of text, have 0: what predicting them costs counts, and
/// they are no text. Numbers that are no token have NaN.
at::Tensor bytes_of_tokens(const Tokenizer& tokenizer, int64_t vocab_size);

/// One pass over the reader, `num_sequences` at a time; ranks take turns, and all make the same number of forward
/// passes. Routers count nothing and add no loss. `bytes_V`: of bytes_of_tokens(); undefined where the tokenizer is not known.
/// `progress` is told the targets read so far.
Evaluation evaluate(nn::Model& model, EvalReader& reader, int64_t num_sequences, Comm& comm, const at::Tensor& bytes_V = {},
                    const std::function<void(int64_t)>& progress = {});

}  // namespace scatterlm

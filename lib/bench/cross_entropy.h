// Benchmark of the loss and its gradient, from the logits on.
#pragma once
#include "lib/bench/bench.h"
#include "lib/bench/shape_list.h"
#include "lib/bench/work.h"

namespace scatterlm::bench {

struct LogitsShape {
  int64_t tokens = 0;  ///< T
  int64_t vocab = 0;   ///< V
  std::string name;    ///< of a published shape, else empty

  Sizes sizes() const { return {{"T", tokens}, {"V", vocab}}; }
};

/// T,V, the name of a published shape (a chunk of the head of configs/dense_124m.yaml) or published; several with ';' between.
/// Throws Error about --shapes.
std::vector<LogitsShape> parse_logits_shapes(std::string_view text);

/// Logits in fp32 in; with a gradient, that out.
Work cross_entropy_forward_work(const LogitsShape& shape);
Work cross_entropy_backward_work(const LogitsShape& shape, int64_t gradient_bytes);

/// Losses of one chunk of tokens, without and with their gradient in the type of the model, compared with LibTorch's
/// operations.
Measured measure_cross_entropy(const LogitsShape& shape, const Conditions& conditions);

}  // namespace scatterlm::bench

// Cross-entropy of rows of logits as loops over a CPU tensor, and in LibTorch's own operations on any device.
#include <ATen/ATen.h>

#include "lib/ops/cpu_loops.h"
#include "lib/ops/cross_entropy.h"

namespace scatterlm::ops {
namespace {

/// Loss of one row of logits; the logits become their gradient, softmax - one hot.
template <class A>
SCATTERLM_VECTOR_CLONES A softmax_row(A* row, int64_t vocab, int64_t target) {
  const A highest = lane_max<A>(vocab, [&](int64_t i) { return row[i]; }), of_target = row[target];
  for (int64_t i = 0; i < vocab; ++i) row[i] = exp_of(row[i] - highest);
  const A sum = lane_sum<A>(vocab, [&](int64_t i) { return row[i]; }), scale = A(1) / sum;
  for (int64_t i = 0; i < vocab; ++i) row[i] *= scale;
  row[target] -= A(1);
  return highest - of_target + std::log(sum);
}

template <class A>
void replace_by_gradient(const at::Tensor& logits_TV, const at::Tensor& target_T, const at::Tensor& losses_T) {
  const int64_t vocab = logits_TV.size(1);
  A *logits = logits_TV.mutable_data_ptr<A>(), *losses = losses_T.mutable_data_ptr<A>();
  const auto* target = target_T.const_data_ptr<int64_t>();
  for_rows(logits_TV.size(0), vocab, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) losses[t] = softmax_row(logits + t * vocab, vocab, target[t]);
  });
}

}  // namespace

at::Tensor cpu::softmax_rows(at::Tensor logits_TV, const at::Tensor& target_T, const at::Tensor& losses_T) {
  if (logits_TV.scalar_type() == at::kDouble) {
    replace_by_gradient<double>(logits_TV, target_T, losses_T);
  } else {
    replace_by_gradient<float>(logits_TV, target_T, losses_T);
  }
  return logits_TV;
}

at::Tensor ref::softmax_rows(at::Tensor logits_TV, const at::Tensor& target_T, const at::Tensor& losses_T) {
  const auto target_T1 = target_T.unsqueeze(1);
  logits_TV = at::log_softmax(logits_TV, 1);
  losses_T.copy_(-logits_TV.gather(1, target_T1).squeeze(1));
  return logits_TV.exp_().scatter_add_(1, target_T1, at::full_like(target_T1, -1, logits_TV.options()));
}

}  // namespace scatterlm::ops

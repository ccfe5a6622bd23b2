#include "lib/ops/router_scores.h"

namespace scatterlm::ops {

RouterOutput router_scores(const at::Tensor& logits_TE, const std::optional<at::Tensor>& bias_E, const RouterOptions& options) {
  if (auto out = cuda::router_scores(logits_TE, bias_E, options)) return *out;
  return logits_TE.is_cpu() ? cpu::router_scores(logits_TE, bias_E, options) : ref::router_scores(logits_TE, bias_E, options);
}

}  // namespace scatterlm::ops

#include "lib/ops/token_rounding.h"

namespace scatterlm::ops {

int64_t max_slots(int64_t num_tokens, int64_t num_experts, int64_t top_k) {
  return std::min(num_tokens * num_experts, num_tokens * top_k + num_experts * (kRoundingTile / 2));
}

RoundedRouting token_rounding(const RouterOutput& chosen, const RouterOptions& options) {
  if (auto rounded = cuda::token_rounding(chosen, options)) return *rounded;
  return ref::token_rounding(chosen, options);
}

}  // namespace scatterlm::ops

// Every form of scores and gates.
#pragma once
#include <vector>

#include "lib/ops/router.h"
#include "tests/ops/reference.h"

namespace scatterlm::test {

inline std::vector<ops::RouterOptions> all_forms(int64_t top_k) {
  return {{.num_experts_per_tok = top_k, .topk_before_softmax = true},
          {.num_experts_per_tok = top_k, .norm_topk_prob = false},
          {.num_experts_per_tok = top_k, .norm_topk_prob = true, .routed_scaling_factor = 2.5},
          {.num_experts_per_tok = top_k, .score = RouterScore::kSigmoid, .norm_topk_prob = false, .routed_scaling_factor = 0.5},
          {.num_experts_per_tok = top_k, .score = RouterScore::kSigmoid, .norm_topk_prob = true, .routed_scaling_factor = 2.5}};
}

}  // namespace scatterlm::test

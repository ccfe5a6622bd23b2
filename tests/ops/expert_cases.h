// The case table of ops with experts: sizes and who gets the tokens.
#pragma once
#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "tests/ops/check_op.h"

namespace scatterlm::test {

struct ExpertCase {
  std::string name;
  int64_t tokens, top_k, experts, model, width;
  enum { kMixed, kOneTakesAll, kIdleExperts } load = kMixed;

  /// Distinct experts per token, except where one takes all.
  at::Tensor ids() const {
    if (load == kOneTakesAll) return at::full({tokens, top_k}, experts - 1, at::kInt);
    const int64_t used = load == kIdleExperts ? std::max(top_k, experts / 2) : experts;
    auto ids_TK = at::empty({tokens, top_k}, at::kInt);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t j = 0; j < top_k; ++j) ids_TK[t][j] = static_cast<int>((t * t + 3 * t + j) % used);
    return ids_TK;
  }
  at::Tensor gates() const { return at::softmax(randn({tokens, top_k}, 11), 1); }
};

inline std::vector<ExpertCase> small_expert_cases() {
  return {
      {.name = "odd sizes", .tokens = 7, .top_k = 2, .experts = 5, .model = 3, .width = 5},
      {.name = "one token", .tokens = 1, .top_k = 2, .experts = 4, .model = 4, .width = 1},
      {.name = "every expert", .tokens = 5, .top_k = 3, .experts = 3, .model = 2, .width = 3},
      {.name = "one expert takes all",
       .tokens = 6,
       .top_k = 1,
       .experts = 4,
       .model = 3,
       .width = 4,
       .load = ExpertCase::kOneTakesAll},
      {.name = "idle experts", .tokens = 9, .top_k = 2, .experts = 6, .model = 4, .width = 3, .load = ExpertCase::kIdleExperts},
      {.name = "one expert", .tokens = 4, .top_k = 1, .experts = 1, .model = 3, .width = 2}};
}

inline std::vector<ExpertCase> large_expert_cases() {
  return {{.name = "tile edges", .tokens = 129, .top_k = 2, .experts = 8, .model = 33, .width = 31},
          {.name = "aligned", .tokens = 96, .top_k = 4, .experts = 16, .model = 64, .width = 32},
          {.name = "idle, aligned",
           .tokens = 70,
           .top_k = 2,
           .experts = 16,
           .model = 32,
           .width = 64,
           .load = ExpertCase::kIdleExperts}};
}

}  // namespace scatterlm::test

// Inputs of the MoE MLP, the op and its formula.
#pragma once
#include "lib/ops/moe_mlp.h"
#include "tests/ops/expert_cases.h"
#include "tests/ops/reference.h"

namespace scatterlm::test::moe_mlp {

/// x, w1, w2, gates.
inline Tensors make_inputs(const ExpertCase& c, Activation kind) {
  const int64_t up = is_gated(kind) ? 2 * c.width : c.width;
  return {randn({c.tokens, c.model}, 1), randn({c.experts, up, c.model}, 2) / std::sqrt(c.model),
          randn({c.experts, c.model, c.width}, 3) / std::sqrt(c.width), c.gates()};
}

inline Op op_for(const ExpertCase& c, Activation kind, at::Device device = at::kCPU) {
  const auto routing = ops::make_routing(c.ids().to(device), c.experts);
  return [=](const Tensors& x) { return ops::moe_mlp(x[0], x[1], x[2], x[3], routing, kind); };
}

inline Op reference_for(const ExpertCase& c, Activation kind) {
  return [=, ids = c.ids()](const Tensors& x) { return reference::moe_mlp(x[0], x[1], x[2], x[3], ids, kind); };
}

}  // namespace scatterlm::test::moe_mlp

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

/// x, w1, w2, gates, b1, b2.
inline Tensors make_biased_inputs(const ExpertCase& c, Activation kind) {
  auto inputs = make_inputs(c, kind);
  inputs.push_back(randn({c.experts, inputs[1].size(1)}, 4));
  inputs.push_back(randn({c.experts, c.model}, 5));
  return inputs;
}

inline ops::MoeMlpBias bias_of(const Tensors& x) { return x.size() == 6 ? ops::MoeMlpBias{x[4], x[5]} : ops::MoeMlpBias{}; }

inline Op op_for(const ExpertCase& c, Activation kind, at::Device device = at::kCPU) {
  const auto routing = ops::make_routing(c.ids().to(device), c.experts);
  return [=](const Tensors& x) { return ops::moe_mlp(x[0], x[1], x[2], x[3], routing, kind, bias_of(x)); };
}

inline Op reference_for(const ExpertCase& c, Activation kind) {
  return [=, ids = c.ids()](const Tensors& x) { return reference::moe_mlp(x[0], x[1], x[2], x[3], ids, kind, bias_of(x)); };
}

}  // namespace scatterlm::test::moe_mlp

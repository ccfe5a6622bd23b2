// The row orders of ParallelLinear with their inputs and formulas.
#pragma once
#include <string>
#include <vector>

#include "lib/ops/parallel_linear.h"
#include "tests/ops/expert_cases.h"
#include "tests/ops/reference.h"

namespace scatterlm::test::parallel_linear {

using ops::RowOrder;

struct Form {
  std::string name;
  RowOrder in, out;
  bool per_token = false;  ///< x has T rows, each for its K slots
  bool gated = false;
};

inline std::vector<Form> all_forms() {
  return {{.name = "tokens to expert order", .in = RowOrder::kToken, .out = RowOrder::kExpert, .per_token = true},
          {.name = "slots to expert order", .in = RowOrder::kToken, .out = RowOrder::kExpert},
          {.name = "tokens to slots", .in = RowOrder::kToken, .out = RowOrder::kToken, .per_token = true},
          {.name = "slots to slots", .in = RowOrder::kToken, .out = RowOrder::kToken},
          {.name = "expert order to slots", .in = RowOrder::kExpert, .out = RowOrder::kToken},
          {.name = "expert order throughout", .in = RowOrder::kExpert, .out = RowOrder::kExpert},
          {.name = "tokens to gated sum", .in = RowOrder::kToken, .out = RowOrder::kToken, .per_token = true, .gated = true},
          {.name = "slots to gated sum", .in = RowOrder::kToken, .out = RowOrder::kToken, .gated = true},
          {.name = "expert order to gated sum", .in = RowOrder::kExpert, .out = RowOrder::kToken, .gated = true}};
}

/// x, weight and, where the form has them, gates.
inline Tensors make_inputs(const ExpertCase& c, const Form& form) {
  Tensors inputs = {randn({form.per_token ? c.tokens : c.tokens * c.top_k, c.model}, 1),
                    randn({c.experts, c.width, c.model}, 2) / std::sqrt(c.model)};
  if (form.gated) inputs.push_back(c.gates());
  return inputs;
}

inline Op op_for(const ExpertCase& c, const Form& form, at::Device device = at::kCPU) {
  const auto routing = ops::make_routing(c.ids().to(device), c.experts);
  return [=](const Tensors& x) {
    return ops::parallel_linear(x[0], x[1], routing, form.in, form.out, form.gated ? std::optional(x[2]) : std::nullopt);
  };
}

inline Op reference_for(const ExpertCase& c, const Form& form) {
  return [=, ids = c.ids(), routing = ops::make_routing(c.ids(), c.experts)](const Tensors& x) {
    return reference::parallel_linear(x[0], x[1], ids, routing, form.in, form.out,
                                      form.gated ? std::optional(x[2]) : std::nullopt);
  };
}

}  // namespace scatterlm::test::parallel_linear

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lib/bench/accuracy.h"
#include "lib/bench/passes.h"
#include "lib/bench/plain.h"
#include "lib/ops/moe_mlp.h"

namespace scatterlm::bench {
namespace {

at::Tensor forward(const MoeInputs& in) {
  const auto routing = ops::make_routing(in.ids_TK, in.shape.experts);
  return ops::moe_mlp(in.x_TD, in.w1, in.w2, in.gates_TK, routing, Activation::kSwiglu);
}

at::Tensor plain_forward(const MoeInputs& in, at::ScalarType dtype) {
  MoeInputs converted = in;
  for (auto* tensor : {&converted.x_TD, &converted.w1, &converted.w2}) *tensor = tensor->to(dtype);
  return plain::forward(converted, ops::ref::make_routing(in.ids_TK, in.shape.experts)).out_TD;
}

}  // namespace

Measured measure_inference(const MoeInputs& in, const Conditions& conditions) {
  const at::NoGradGuard no_grad;
  const auto& machine = conditions.machine;
  const auto dtype = in.x_TD.scalar_type();
  auto row = row_of(in.shape.sizes(), conditions);
  row["max_err_ratio"] = require_accurate(
      "inference", {{"out", forward(in), plain_forward(in, dtype), plain_forward(in, higher_precision(dtype))}});
  const int64_t touched = std::get<0>(at::_unique(in.ids_TK)).numel();
  row["touched_experts"] = touched;

  const auto weights = op_work({weights_of(in.shape, touched, machine.element_bytes())}, {}, machine.ceilings);
  const auto resources = measure_resources([&] { return forward(in); }, [](const at::Tensor&) {}, machine.device, row);
  const auto text = time_passes({{"", "fwd", [&] { forward(in); }, weights.forward, weights.forward_bound_ms},
                                 {"aten", "fwd", [&] { plain_forward(in, dtype); }, weights.forward, weights.forward_bound_ms}},
                                conditions, row);
  return {.rows = nlohmann::ordered_json::array({row}), .text = text + resources};
}

}  // namespace scatterlm::bench

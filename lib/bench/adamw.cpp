#include "lib/ops/adamw.h"

#include <ATen/ATen.h>

#include "lib/bench/accuracy.h"
#include "lib/bench/passes.h"
#include "lib/ops/sum_of_squares.h"

namespace scatterlm::bench {
namespace {

constexpr double kLr = 1e-3, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8, kWeightDecay = 0.1;

ops::AdamWTensors make_tensors(const at::Tensor& weights, at::ScalarType state_dtype, at::ScalarType grads_dtype) {
  const auto state = weights.to(state_dtype, /*non_blocking=*/false, /*copy=*/true);
  const auto grads = at::randn_like(weights, at::kFloat).mul_(1e-3);
  return {.weights = state,
          .exp_avg = grads.mul(0.1).to(state_dtype),
          .exp_avg_sq = grads.square().mul_(0.05).to(state_dtype),
          .grads = grads.to(grads_dtype),
          .params = state_dtype == at::kBFloat16 ? state : state.to(at::kBFloat16),
          .num_decayed = weights.numel()};
}

ops::AdamWTensors copy_of(const ops::AdamWTensors& t, at::ScalarType dtype) {
  const auto copy = [&](const at::Tensor& x) { return x.to(dtype, /*non_blocking=*/false, /*copy=*/true); };
  const auto weights = copy(t.weights);
  const bool same = t.params.data_ptr() == t.weights.data_ptr();
  return {weights, copy(t.exp_avg), copy(t.exp_avg_sq), t.grads.clone(), same ? weights : t.params.clone(), t.num_decayed};
}

ops::AdamWStep step_of(at::Device device) {
  const auto number = [&](double value) { return at::full({1}, value, at::TensorOptions(device).dtype(at::kFloat)); };
  return {kLr, kBeta1, kBeta2, kEps, kWeightDecay, number(1), number(0), number(5).squeeze()};
}

/// Gradients are read; weights, moments and, where they differ from the weights, bf16 parameters are written.
Work update_work(const ops::AdamWTensors& t) {
  const double state = 2.0 * 3 * t.weights.element_size();
  const double params = t.params.data_ptr() == t.weights.data_ptr() ? 0 : 2;
  return {.bytes = static_cast<double>(t.weights.numel()) * (t.grads.element_size() + state + params)};
}

std::vector<Comparison> compare_updates(const std::string& name, const ops::AdamWTensors& t, const ops::AdamWStep& step) {
  const auto dtype = t.weights.scalar_type();
  const auto actual = copy_of(t, dtype), plain = copy_of(t, dtype), truth = copy_of(t, higher_precision(dtype));
  ops::adamw(actual, step);
  ops::ref::adamw(plain, step);
  ops::ref::adamw(truth, step);
  const auto compare = [&](const char* what, at::Tensor ops::AdamWTensors::*member) {
    return Comparison{name + " " + what, actual.*member, plain.*member, truth.*member};
  };
  return {compare("weights", &ops::AdamWTensors::weights), compare("exp_avg", &ops::AdamWTensors::exp_avg),
          compare("exp_avg_sq", &ops::AdamWTensors::exp_avg_sq), compare("params", &ops::AdamWTensors::params)};
}

}  // namespace

Measured measure_adamw(const MoeInputs& in, const Conditions& conditions) {
  const auto weights = at::cat({in.w1.flatten(), in.w2.flatten()});
  const auto step = step_of(weights.device());
  auto row = row_of(in.shape.sizes(), conditions);
  row["elements"] = weights.numel();
  std::vector<Comparison> comparisons;
  std::vector<Pass> passes;
  const auto add = [&](const std::string& name, const Work& work, std::function<void()> ours, std::function<void()> aten) {
    const auto& ceilings = conditions.machine.ceilings;
    const auto bound = ceilings ? std::optional(bound_ms(work, *ceilings)) : std::nullopt;
    passes.push_back({"", name, std::move(ours), work, bound});
    passes.push_back({"aten", name, std::move(aten), work, bound});
  };
  for (const auto& [name, state, gradients] :
       {std::tuple("fp32_state", at::kFloat, at::kFloat), std::tuple("bf16_state", at::kBFloat16, at::kFloat),
        std::tuple("bf16", at::kBFloat16, at::kBFloat16)}) {
    const auto tensors = make_tensors(weights, state, gradients);
    const auto more = compare_updates(name, tensors, step);
    comparisons.insert(comparisons.end(), more.begin(), more.end());
    add(
        name, update_work(tensors), [=] { ops::adamw(tensors, step); }, [=] { ops::ref::adamw(tensors, step); });
  }
  const auto grads = at::randn_like(weights, at::kFloat);
  comparisons.push_back({"norm", ops::sum_of_squares({grads}), at::linalg_vector_norm(grads).square().view({1}),
                         grads.to(at::kDouble).square().sum().view({1})});
  add(
      "norm", {.bytes = 4.0 * static_cast<double>(grads.numel())}, [=] { ops::sum_of_squares({grads}); },
      [=] { at::linalg_vector_norm(grads); });
  row["max_err_ratio"] = require_accurate("adamw", comparisons);
  const auto text = time_passes(passes, conditions, row);
  return {.rows = nlohmann::ordered_json::array({row}), .text = text};
}

}  // namespace scatterlm::bench

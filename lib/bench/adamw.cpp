#include "lib/ops/adamw.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "lib/bench/accuracy.h"
#include "lib/bench/passes.h"
#include "lib/ops/sum_of_squares.h"

namespace scatterlm::bench {
namespace {

constexpr double kLr = 1e-3, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8, kWeightDecay = 0.1;
constexpr int64_t kCompared = 1 << 20;  // elements at either end: copies of whole vectors in float64 would fill a GPU

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

/// Elements begin .. begin + size, in the memory of t.
ops::AdamWTensors slice_of(const ops::AdamWTensors& t, int64_t begin, int64_t size) {
  const auto part = [&](const at::Tensor& x) { return x.narrow(0, begin, size); };
  return {part(t.weights), part(t.exp_avg), part(t.exp_avg_sq), part(t.grads), part(t.params), size};
}

/// Updates t, and copies of its first and last kCompared elements with plain LibTorch; the largest error in units of the
/// latter's.
double compare_update(const std::string& name, const ops::AdamWTensors& t, const ops::AdamWStep& step) {
  const auto dtype = t.weights.scalar_type();
  const int64_t numel = t.weights.numel(), size = std::min(numel, kCompared);
  std::vector<Comparison> comparisons;
  for (const int64_t begin : {int64_t{0}, numel - size}) {
    const auto actual = slice_of(t, begin, size), plain = copy_of(actual, dtype),
               truth = copy_of(actual, higher_precision(dtype));
    ops::ref::adamw(plain, step);
    ops::ref::adamw(truth, step);
    const auto compare = [&](const char* what, at::Tensor ops::AdamWTensors::*member) {
      comparisons.push_back({name + " " + what, actual.*member, plain.*member, truth.*member});
    };
    compare("weights", &ops::AdamWTensors::weights);
    compare("exp_avg", &ops::AdamWTensors::exp_avg);
    compare("exp_avg_sq", &ops::AdamWTensors::exp_avg_sq);
    compare("params", &ops::AdamWTensors::params);
  }
  ops::adamw(t, step);
  return require_accurate("adamw", comparisons);
}

/// What was measured so far: times of ours and of LibTorch's go into the row.
struct Figures {
  const Conditions& conditions;
  nlohmann::ordered_json row;
  std::string text;
  double max_err_ratio = 0;

  void add(const std::string& name, const Work& work, const std::function<void()>& ours, const std::function<void()>& aten) {
    const auto& ceilings = conditions.machine.ceilings;
    const auto bound = ceilings ? std::optional(bound_ms(work, *ceilings)) : std::nullopt;
    text += time_passes({{"", name, ours, work, bound}, {"aten", name, aten, work, bound}}, conditions, row);
  }
};

void measure_update(const std::string& name, const ops::AdamWTensors& t, Figures& figures) {
  const auto step = step_of(t.weights.device());
  figures.max_err_ratio = std::max(figures.max_err_ratio, compare_update(name, t, step));
  figures.add(
      name, update_work(t), [&] { ops::adamw(t, step); }, [&] { ops::ref::adamw(t, step); });
}

void measure_norm(const at::Tensor& grads, Figures& figures) {
  const Comparison squares{"norm", ops::sum_of_squares({grads}), at::linalg_vector_norm(grads).square().view({1}),
                           grads.to(at::kDouble).square_().sum().view({1})};
  figures.max_err_ratio = std::max(figures.max_err_ratio, require_accurate("adamw", {squares}));
  figures.add(
      "norm", {.bytes = 4.0 * static_cast<double>(grads.numel())}, [&] { ops::sum_of_squares({grads}); },
      [&] { at::linalg_vector_norm(grads); });
}

}  // namespace

// The tensors of one kind of state are freed before those of the next are made: the largest published shape has 1.6e9
// parameters.
Measured measure_adamw(const MoeInputs& in, const Conditions& conditions) {
  const auto weights = at::cat({in.w1.flatten(), in.w2.flatten()});
  Figures figures{.conditions = conditions, .row = row_of(in.shape.sizes(), conditions)};
  figures.row["elements"] = weights.numel();
  measure_update("fp32_state", make_tensors(weights, at::kFloat, at::kFloat), figures);
  measure_update("bf16_state", make_tensors(weights, at::kBFloat16, at::kFloat), figures);
  measure_update("bf16", make_tensors(weights, at::kBFloat16, at::kBFloat16), figures);
  measure_norm(at::randn_like(weights, at::kFloat), figures);
  figures.row["max_err_ratio"] = figures.max_err_ratio;
  return {.rows = nlohmann::ordered_json::array({figures.row}), .text = figures.text};
}

}  // namespace scatterlm::bench

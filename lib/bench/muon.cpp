#include "lib/ops/muon.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "lib/bench/accuracy.h"
#include "lib/bench/passes.h"
#include "lib/ops/newton_schulz.h"

namespace scatterlm::bench {
namespace {

constexpr double kBeta = 0.95, kLr = 1e-3, kWeightDecay = 0.1;
constexpr int64_t kIterations = 5;

struct MuonInputs {
  ops::MuonMomentum momentum;
  ops::MuonApply apply;
};

MuonInputs make_inputs(int64_t count, at::Device device, at::ScalarType dtype) {
  const auto random = [&](double std) { return at::randn({count}, at::TensorOptions(device).dtype(at::kFloat)).mul_(std); };
  const auto updates = random(0.2).to(dtype), weights = random(0.02);
  return {.momentum = {random(1e-3), random(1e-2), at::empty_like(updates), kBeta},
          .apply = {updates, weights, dtype == at::kFloat ? weights : weights.to(dtype), kLr, kWeightDecay}};
}

MuonInputs copy_of(const MuonInputs& in, at::ScalarType state, at::ScalarType updates) {
  const auto copy = [](const at::Tensor& x, at::ScalarType type) { return x.to(type, /*non_blocking=*/false, /*copy=*/true); };
  const auto weights = copy(in.apply.weights, state);
  const bool same = in.apply.params.data_ptr() == in.apply.weights.data_ptr();
  return {.momentum = {in.momentum.grads, copy(in.momentum.momentum, state), copy(in.momentum.updates, updates), kBeta},
          .apply = {in.apply.updates, weights, same ? weights : copy(in.apply.params, updates), kLr, kWeightDecay}};
}

std::vector<Comparison> compare_passes(const MuonInputs& in, const at::Tensor& one, const at::Tensor& zero) {
  const auto dtype = in.apply.updates.scalar_type();
  const auto actual = copy_of(in, at::kFloat, dtype), plain = copy_of(in, at::kFloat, dtype),
             truth = copy_of(in, at::kDouble, at::kDouble);
  ops::muon_momentum(actual.momentum, one, zero);
  ops::muon_apply(actual.apply, zero);
  for (const auto* x : {&plain, &truth}) {
    ops::ref::muon_momentum(x->momentum, one, zero);
    ops::ref::muon_apply(x->apply, zero);
  }
  return {{"momentum", actual.momentum.momentum, plain.momentum.momentum, truth.momentum.momentum},
          {"updates", actual.momentum.updates, plain.momentum.updates, truth.momentum.updates},
          {"weights", actual.apply.weights, plain.apply.weights, truth.apply.weights}};
}

/// Per iteration a product of a matrix with itself, of the result with itself, and of that with the matrix.
double flops_of(const at::Tensor& matrices) {
  const double n = static_cast<double>(matrices.size(0)),
               small = static_cast<double>(std::min(matrices.size(1), matrices.size(2))),
               large = static_cast<double>(std::max(matrices.size(1), matrices.size(2)));
  return n * kIterations * small * small * (4 * large + 2 * small);
}

}  // namespace

Measured measure_muon(const MoeInputs& in, const Conditions& conditions) {
  const auto device = in.w1.device();
  const auto dtype = device.is_cuda() ? at::kBFloat16 : at::kFloat;
  const int64_t count = in.w1.numel() + in.w2.numel();
  const auto number = [&](double value) { return at::full({1}, value, at::TensorOptions(device).dtype(at::kFloat)); };
  const auto one = number(1), zero = number(0);
  at::manual_seed(0);
  const auto inputs = make_inputs(count, device, dtype);
  auto row = row_of(in.shape.sizes(), conditions);
  row["elements"] = count;
  constexpr int64_t kCompared = int64_t{1} << 22;  // the copies of all elements in float64 would not fit beside the rest
  row["max_err_ratio"] =
      require_accurate("muon", compare_passes(make_inputs(std::min(count, kCompared), device, dtype), one, zero));

  const double numel = static_cast<double>(count), bytes = at::elementSize(dtype);
  const double params = dtype == at::kFloat ? 0 : bytes;
  std::vector<Pass> passes;
  const auto add = [&](const std::string& name, const Work& work, std::function<void()> ours, std::function<void()> aten) {
    const auto& ceilings = conditions.machine.ceilings;
    const auto bound = ceilings ? std::optional(bound_ms(work, *ceilings)) : std::nullopt;
    passes.push_back({"", name, std::move(ours), work, bound});
    if (aten) passes.push_back({"aten", name, std::move(aten), work, bound});
  };
  add(
      "momentum", {.bytes = numel * (4 + 8 + bytes)}, [=] { ops::muon_momentum(inputs.momentum, one, zero); },
      [=] { ops::ref::muon_momentum(inputs.momentum, one, zero); });
  add(
      "apply", {.bytes = numel * (bytes + 8 + params)}, [=] { ops::muon_apply(inputs.apply, zero); },
      [=] { ops::ref::muon_apply(inputs.apply, zero); });
  const auto gate_and_up = at::randn_like(in.w1, dtype).view({-1, in.w1.size(1) / 2, in.w1.size(2)});
  const auto down = at::randn_like(in.w2, dtype);
  add("newton_schulz", {.flops = flops_of(gate_and_up) + flops_of(down)},
      [=] {
        ops::newton_schulz_(gate_and_up, kIterations, 1);
        ops::newton_schulz_(down, kIterations, 1);
      },
      {});
  const auto text = time_passes(passes, conditions, row);
  return {.rows = nlohmann::ordered_json::array({row}), .text = text};
}

}  // namespace scatterlm::bench

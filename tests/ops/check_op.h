// One check for every op: values and gradients against the fp64 formula, finite differences, and bits of two runs.
#pragma once
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "tests/catch.h"

namespace scatterlm::test {

using Tensors = std::vector<at::Tensor>;
using Op = std::function<at::Tensor(const Tensors&)>;

/// Standard normal in fp64.
inline at::Tensor randn(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble);
}

inline double max_abs(const at::Tensor& x) { return x.numel() == 0 ? 0 : x.abs().max().item<double>(); }

inline double ulp_of(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? 0x1p-7 : (dtype == at::kFloat ? 0x1p-23 : 0x1p-52);
}

/// The 2x rule: error of `actual` against `truth` (fp64) at most twice that of `plain`, the same maths in plain LibTorch at the
/// same dtype, plus some ulps of the largest value.
inline void require_as_good_as(const at::Tensor& actual, const at::Tensor& plain, const at::Tensor& truth, double ulps) {
  REQUIRE(actual.sizes() == truth.sizes());
  REQUIRE(actual.scalar_type() == plain.scalar_type());
  const auto wide = [](const at::Tensor& x) { return x.cpu().to(at::kDouble); };
  const double error = max_abs(wide(actual) - truth), plain_error = max_abs(wide(plain) - truth);
  INFO("error " << error << ", plain " << plain_error << ", largest value " << max_abs(truth));
  REQUIRE(error <= 2 * plain_error + ulps * max_abs(truth));
}

struct ValueAndGrads {
  at::Tensor value;
  Tensors grads;
};

/// Gradients of sum(op(inputs) * projection) with respect to all inputs.
inline ValueAndGrads run(const Op& op, const Tensors& inputs, uint64_t seed = 99) {
  Tensors leaves;
  for (const auto& x : inputs) leaves.push_back(x.detach().clone().requires_grad_());
  const auto value = op(leaves);
  const auto projection = randn(value.sizes(), seed).to(value.options());
  return {value.detach(), torch::autograd::grad({value}, leaves, {projection}, /*retain_graph=*/false)};
}

/// Central differences of every element of every input, in fp64.
inline void require_finite_differences(const Op& op, const Tensors& inputs, double tolerance = 1e-7) {
  const auto projection = randn(op(inputs).sizes(), 99);
  const auto loss = [&](const Tensors& x) { return (op(x) * projection).sum().item<double>(); };
  const auto grads = run(op, inputs).grads;
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto numeric = at::empty(inputs[i].sizes(), at::kDouble);
    for (int64_t n = 0; n < inputs[i].numel(); ++n) {
      auto moved = inputs;
      const auto moved_by = [&](double step) {
        moved[i] = inputs[i].clone();
        moved[i].view(-1)[n] += step;
        return loss(moved);
      };
      numeric.view(-1)[n] = (moved_by(kStep) - moved_by(-kStep)) / (2 * kStep);
    }
    INFO("input " << i << ", largest difference " << max_abs(numeric - grads[i]));
    REQUIRE(max_abs(numeric - grads[i]) <= tolerance * (1 + max_abs(grads[i])));
  }
}

/// fp64: op equals the formula in value and gradient.
inline void require_equals_reference(const Op& op, const Op& reference, const Tensors& inputs, double tolerance = 1e-11) {
  const auto actual = run(op, inputs), truth = run(reference, inputs);
  REQUIRE(actual.value.sizes() == truth.value.sizes());
  REQUIRE(max_abs(actual.value - truth.value) <= tolerance * (1 + max_abs(truth.value)));
  for (size_t i = 0; i < inputs.size(); ++i) {
    INFO("input " << i);
    REQUIRE(max_abs(actual.grads[i] - truth.grads[i]) <= tolerance * (1 + max_abs(truth.grads[i])));
  }
}

struct Precision {
  at::ScalarType dtype;
  std::vector<size_t> wide = {};  ///< inputs that stay fp32 (gates)
  at::Device device = at::kCPU;
  double ulps = 1;
};

/// Low precision by the 2x rule, and the same bits in two runs.
inline void require_low_precision(const Op& op, const Op& reference, const Tensors& inputs, const Precision& precision) {
  Tensors low, exact;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool keep = std::count(precision.wide.begin(), precision.wide.end(), i) > 0;
    low.push_back(inputs[i].to(keep ? at::kFloat : precision.dtype).to(precision.device));
    exact.push_back(low[i].cpu().to(at::kDouble));
  }
  const auto actual = run(op, low), again = run(op, low), plain = run(reference, low), truth = run(reference, exact);
  const double ulps = precision.ulps * ulp_of(precision.dtype);
  require_as_good_as(actual.value, plain.value, truth.value, ulps);
  REQUIRE(at::equal(actual.value, again.value));
  for (size_t i = 0; i < inputs.size(); ++i) {
    INFO("gradient of input " << i);
    require_as_good_as(actual.grads[i], plain.grads[i], truth.grads[i], ulps);
    REQUIRE(at::equal(actual.grads[i], again.grads[i]));
  }
}

/// The same bits with one thread and with all.
inline void require_thread_independent(const Op& op, const Tensors& inputs) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = run(op, inputs);
  at::set_num_threads(threads);
  const auto many = run(op, inputs);
  REQUIRE(at::equal(one.value, many.value));
  for (size_t i = 0; i < inputs.size(); ++i) REQUIRE(at::equal(one.grads[i], many.grads[i]));
}

/// Everything at once for a small op on the CPU.
inline void require_correct(const Op& op, const Op& reference, const Tensors& inputs, const std::vector<size_t>& wide = {},
                            double ulps = 1) {
  require_equals_reference(op, reference, inputs);
  require_finite_differences(op, inputs);
  require_low_precision(op, reference, inputs, {.dtype = at::kFloat, .wide = wide, .ulps = ulps});
  require_low_precision(op, reference, inputs, {.dtype = at::kBFloat16, .wide = wide, .ulps = ulps});
}

}  // namespace scatterlm::test

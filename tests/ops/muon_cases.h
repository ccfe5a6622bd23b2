// The passes of Muon on kernels against plain operations: on a GPU, and on the CPU where kernels are emulated.
#pragma once
#include <ATen/ATen.h>

#include "lib/ops/muon.h"
#include "tests/catch.h"
#include "tests/ops/adamw_cases.h"

namespace scatterlm::test {

constexpr double kBeta = 0.9;

struct MuonTensors {
  at::Tensor grads, momentum, updates, weights, params;

  ops::MuonMomentum of_momentum() const { return {grads, momentum, updates, kBeta}; }
  ops::MuonApply of_apply() const { return {updates, weights, params, 0.02, 0.1}; }
};

inline MuonTensors random_muon(at::Device device, int64_t count, at::ScalarType state, at::ScalarType grads) {
  at::manual_seed(count);
  const auto random = [&](at::ScalarType type) { return at::randn({count}, device).to(type); };
  const auto weights = random(state);
  return {random(grads), random(state), random(at::kBFloat16), weights,
          state == at::kFloat ? weights.to(at::kBFloat16) : weights};
}

inline void check_muon(at::Device device, int64_t count, at::ScalarType state, at::ScalarType grads) {
  const auto actual = random_muon(device, count, state, grads), expected = random_muon(device, count, state, grads);
  const auto grads_before = actual.grads.clone(), scale = number(device, 1.7), skip = number(device, 0);
  const auto require_close = [&](const at::Tensor& x, const at::Tensor& y) {
    const double tolerance = x.scalar_type() == at::kFloat ? 3e-6 : 0.01;
    REQUIRE(at::allclose(x.to(at::kFloat), y.to(at::kFloat), tolerance, tolerance));
  };
  REQUIRE(ops::cuda::muon_momentum(actual.of_momentum(), scale, skip));
  ops::ref::muon_momentum(expected.of_momentum(), scale, skip);
  require_close(actual.momentum, expected.momentum);
  require_close(actual.updates, expected.updates);
  REQUIRE(actual.grads.equal(grads_before));
  expected.updates.copy_(actual.updates);  // whose last bit may differ
  REQUIRE(ops::cuda::muon_apply(actual.of_apply(), skip));
  ops::ref::muon_apply(expected.of_apply(), skip);
  require_close(actual.weights, expected.weights);
  REQUIRE(actual.params.equal(actual.weights.to(at::kBFloat16)));
}

}  // namespace scatterlm::test

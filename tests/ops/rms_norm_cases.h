#pragma once
#include "lib/ops/rms_norm.h"
#include "tests/ops/check_op.h"

namespace scatterlm::test {

/// The norm of x + branch, and that of their sum given as x alone: the same y, and the same gradient where y and the sum are
/// used.
inline void require_sum_without_branch_has_the_same_bits(at::TensorOptions options, int64_t width) {
  const auto x = randn({65, width}, 1).to(options), branch = randn({65, width}, 2).to(options);
  const auto weight = randn({width}, 3).to(options);
  const auto both = [](const ops::AddedAndNormed& normed) { return at::stack({2 * normed.sum, normed.y}); };
  const auto added =
      run([&](const Tensors& in) { return both(ops::add_rms_norm(in[0], in[1], in[2], 1e-5)); }, {x, branch, weight});
  const auto given =
      run([&](const Tensors& in) { return both(ops::add_rms_norm(in[0], std::nullopt, in[1], 1e-5)); }, {x + branch, weight});
  REQUIRE(given.value.equal(added.value));
  REQUIRE((given.grads[0].equal(added.grads[0]) && given.grads[0].equal(added.grads[1])));
  REQUIRE(given.grads[1].equal(added.grads[2]));
  const auto y = ops::rms_norm(x + branch, weight, 1e-5);
  REQUIRE(y.equal(added.value[1]));
}

}  // namespace scatterlm::test

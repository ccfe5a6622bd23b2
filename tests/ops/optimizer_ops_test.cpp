// The ops of the optimiser's step on a GPU; tests/optim has them on the CPU.
#include <ATen/ATen.h>

#include "lib/ops/sum_of_squares.h"
#include "tests/catch.h"
#include "tests/ops/adamw_cases.h"
#include "tests/ops/muon_cases.h"

namespace scatterlm {

TEST_CASE("adamw: as at::_fused_adamw_, on a GPU", "[adamw][.gpu]") {
  const auto state = GENERATE(at::kFloat, at::kBFloat16), grads = GENERATE(at::kFloat, at::kBFloat16);
  test::check_adamw(at::kCUDA, GENERATE(1, 31, 2064, 1 << 22), state, grads);
}

TEST_CASE("muon: as the plain operations, on a GPU", "[muon][.gpu]") {
  const auto state = GENERATE(at::kFloat, at::kBFloat16), grads = GENERATE(at::kFloat, at::kBFloat16);
  test::check_muon(at::kCUDA, GENERATE(1, 8, 31, 2064, 1 << 22), state, grads);
}

TEST_CASE("sum_of_squares: over vectors of any length, the same bits twice, on a GPU", "[sum_of_squares][.gpu]") {
  const std::vector<at::Tensor> parts{at::randn({1 << 24}, at::kCUDA), at::randn({1}, at::kCUDA), at::empty({0}, at::kCUDA),
                                      at::randn({(1 << 20) + 7}, at::kCUDA)};
  const double expected = at::cat(parts).to(at::kDouble).square().sum().item<double>();
  const auto sum = ops::sum_of_squares(parts);
  REQUIRE(std::abs(sum.item<double>() - expected) < 1e-6 * expected);
  REQUIRE(ops::sum_of_squares(parts).equal(sum));
}

TEST_CASE("sum_of_squares: on the CPU in float64", "[sum_of_squares]") {
  const auto x = at::full({1 << 22}, 0.1f);
  const double each = 0.1f;
  REQUIRE(std::abs(ops::sum_of_squares({x, x}).item<double>() - 2 * (1 << 22) * each * each) < 1e-6 * (1 << 23) * each * each);
}

}  // namespace scatterlm

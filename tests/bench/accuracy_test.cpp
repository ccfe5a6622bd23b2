#include "lib/bench/accuracy.h"

#include <ATen/ATen.h>

#include <limits>

#include "lib/util/error.h"
#include "tests/catch.h"

namespace scatterlm::bench {
namespace {

at::Tensor truth() { return at::randn({200, 64}, at::make_generator<at::CPUGeneratorImpl>(1), at::kFloat); }

Comparison rounded() { return {"y", truth().to(at::kBFloat16), truth().to(at::kBFloat16), truth()}; }

}  // namespace

TEST_CASE("accuracy: rounding alone is as good as plain", "[accuracy]") { REQUIRE(require_accurate("op", {rounded()}) == 1); }

TEST_CASE("accuracy: the largest ratio counts", "[accuracy]") {
  auto exact = rounded();
  exact.actual = truth();
  REQUIRE(require_accurate("op", {exact}) == 0);
  REQUIRE(require_accurate("op", {exact, rounded()}) == 1);
}

TEST_CASE("accuracy: one wrong element, a lost row and what was not written are refused", "[accuracy]") {
  auto wrong = rounded();
  wrong.actual = wrong.actual.clone();
  SECTION("element") { wrong.actual[3][5] += 1; }
  SECTION("row") { wrong.actual[199].zero_(); }
  SECTION("NaN") { wrong.actual[0][0] = std::numeric_limits<float>::quiet_NaN(); }
  SECTION("infinity") { wrong.actual[0][0] = std::numeric_limits<float>::infinity(); }
  SECTION("zeros") { wrong.actual.zero_(); }
  REQUIRE_THROWS_WITH(require_accurate("op", {wrong}), ContainsSubstring("[op] y is wrong: relative error"));
}

TEST_CASE("accuracy: the error is that of the worst row over the typical norm", "[accuracy]") {
  const auto expected = at::ones({4, 9});
  auto actual = expected.clone();
  actual[2][0] = 1.5;
  actual[3][0] = 1.25;
  REQUIRE(worst_row_error(actual, expected) == Approx(0.5 / 3));
  REQUIRE(worst_row_error(expected, expected) == 0);
  REQUIRE(worst_row_error(at::zeros({2, 3}), at::zeros({2, 3})) == 0);
  REQUIRE(std::isinf(
      worst_row_error(at::full({2, 3}, std::numeric_limits<float>::quiet_NaN()), expected.slice(0, 0, 2).slice(1, 0, 3))));
}

TEST_CASE("accuracy: integers are equal or wrong", "[accuracy]") {
  const auto ids = at::arange(5, at::kInt);
  REQUIRE(require_accurate("op", {{"ids", ids, ids, ids}}) == 0);
  REQUIRE_THROWS_WITH(require_accurate("op", {{"ids", ids + 1, ids, ids}}), ContainsSubstring("[op] ids is wrong"));
}

}  // namespace scatterlm::bench

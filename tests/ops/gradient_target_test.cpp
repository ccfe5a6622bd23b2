#include "lib/ops/gradient_target.h"

#include <ATen/ATen.h>

#include "tests/catch.h"

using namespace scatterlm;
using kernels::GradientUpdate;

namespace {

at::Tensor leaf_with_gradient(at::ScalarType dtype) {
  auto leaf = at::ones({2, 3}).requires_grad_();
  leaf.set_grad_dtype(std::nullopt);
  leaf.mutable_grad() = at::full({2, 3}, NAN, dtype);
  return leaf;
}

}  // namespace

TEST_CASE("gradient_target: the first target of an unwritten gradient stores, the next ones add", "[gradient_target]") {
  const auto leaf = leaf_with_gradient(GENERATE(at::kFloat, at::kBFloat16));
  ops::mark_unwritten(leaf.grad());
  REQUIRE(ops::is_unwritten(leaf.grad()));
  for (const auto expected : {GradientUpdate::kStore, GradientUpdate::kAdd, GradientUpdate::kAdd}) {
    const ops::GradientTarget target(leaf);
    REQUIRE(target.update() == expected);
    REQUIRE(target.tensor().data_ptr() == leaf.grad().data_ptr());
    REQUIRE_FALSE(target.result().defined());
    REQUIRE_FALSE(ops::is_unwritten(leaf.grad()));
  }
  ops::zero_if_unwritten(leaf.grad());
  REQUIRE(leaf.grad().isnan().all().item<bool>());  // written: not zeroed
}

TEST_CASE("gradient_target: zeros take the mark away", "[gradient_target]") {
  const auto leaf = leaf_with_gradient(at::kFloat);
  ops::mark_unwritten(leaf.grad());
  ops::zero_if_unwritten(leaf.grad());
  REQUIRE(leaf.grad().eq(0).all().item<bool>());
  REQUIRE(ops::GradientTarget(leaf).update() == GradientUpdate::kAdd);
}

TEST_CASE("gradient_target: what cannot be written in place gets a tensor of its own", "[gradient_target]") {
  const auto none = at::ones({2, 3}).requires_grad_(), wide = leaf_with_gradient(at::kDouble);
  auto strided = leaf_with_gradient(at::kFloat);
  strided.mutable_grad() = at::ones({3, 2}).t();
  for (const auto& parameter : {none, wide, strided, none * 2}) {
    const ops::GradientTarget target(parameter);
    REQUIRE(target.update() == GradientUpdate::kStore);
    REQUIRE(target.result().data_ptr() == target.tensor().data_ptr());
    REQUIRE(target.tensor().sizes() == parameter.sizes());
    REQUIRE(target.tensor().scalar_type() == at::kFloat);
  }
}

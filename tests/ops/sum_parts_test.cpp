#include "lib/ops/sum_parts.h"

#include <ATen/ATen.h>

#include "lib/util/error.h"
#include "tests/catch.h"

namespace scatterlm::ops {
namespace {

TEST_CASE("sum_parts adds in the order of the parts, bf16 in fp32") {
  auto out = at::empty({1});
  sum_parts(at::tensor({1e8F, 1.0F, -1e8F}).view({3, 1}), out);
  REQUIRE(out.item<float>() == 0);
  sum_parts(at::tensor({1e8F, -1e8F, 1.0F}).view({3, 1}), out);
  REQUIRE(out.item<float>() == 1);
  auto rounded = at::empty({1}, at::kBFloat16);
  sum_parts(at::tensor({256.0F, 1.0F, 1.0F}).to(at::kBFloat16).view({3, 1}), rounded);
  REQUIRE(rounded.item<float>() == 258);  // 256 + 1 is 256 in bf16
  auto exact = at::empty({3}, at::kLong);
  sum_parts(at::arange(6).view({2, 3}), exact);
  REQUIRE(exact.equal(at::tensor({3, 5, 7})));
}

TEST_CASE("sum_parts: a GPU's bits are the CPU's", "[.gpu]") {
  const int64_t count = GENERATE(0, 1, 12, 100'008), parts = GENERATE(1, 2, 8);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble, at::kLong}) {
    const auto x = (at::randn({parts, count}) * 100).to(dtype);
    auto out = at::empty({count}, dtype), on_gpu = at::empty({count}, at::TensorOptions().dtype(dtype).device(at::kCUDA));
    sum_parts(x, out);
    sum_parts(x.cuda(), on_gpu);
    REQUIRE(on_gpu.cpu().equal(out));
  }
}

TEST_CASE("sum_parts refuses what does not fit") {
  const auto refused = ContainsSubstring("[sum_parts] needs");
  REQUIRE_THROWS_WITH(sum_parts(at::empty({2, 3}), at::empty({2})), refused);
  REQUIRE_THROWS_WITH(sum_parts(at::empty({2, 3}), at::empty({3}, at::kBFloat16)), refused);
  REQUIRE_THROWS_WITH(sum_parts(at::empty({3, 2}).t(), at::empty({3})), refused);
  REQUIRE_THROWS_WITH(sum_parts(at::empty({0, 3}), at::empty({3})), refused);
}

}  // namespace
}  // namespace scatterlm::ops

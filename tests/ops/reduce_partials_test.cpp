#include "lib/ops/reduce_partials.h"

#include <ATen/ATen.h>

#include "lib/util/error.h"
#include "tests/catch.h"

namespace scatterlm::ops {
namespace {

TEST_CASE("reduce_partials adds in the order of the parts, bf16 in fp32") {
  const auto sum = [](const at::Tensor& others, const at::Tensor& own, int64_t own_index) {
    auto out = at::empty_like(own);
    reduce_partials(others.unsqueeze(1), own, own_index, out);
    return out.item<double>();
  };
  const auto one = at::tensor({1.0F}), large = at::tensor({1e8F, -1e8F});
  REQUIRE(sum(large, one, 0) == 0);
  REQUIRE(sum(large, one, 1) == 0);
  REQUIRE(sum(large, one, 2) == 1);
  REQUIRE(sum(at::tensor({256.0F, 1.0F}).to(at::kBFloat16), one.to(at::kBFloat16), 1) == 258);  // 256 + 1 is 256 in bf16
  REQUIRE(sum(at::tensor({3, 5}, at::kLong), at::tensor({7}, at::kLong), 0) == 15);
}

TEST_CASE("reduce_partials: out may be own") {
  auto own = at::tensor({1.0F, 2.0F});
  reduce_partials(at::tensor({10.0F, 20.0F}).view({1, 2}), own, 1, own);
  REQUIRE(own.equal(at::tensor({11.0F, 22.0F})));
}

TEST_CASE("reduce_partials: a GPU's bits are the CPU's", "[.gpu]") {
  const int64_t count = GENERATE(0, 1, 12, 100'008), others = GENERATE(1, 2, 7);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble, at::kLong}) {
    const auto x = (at::randn({others, count}) * 100).to(dtype), own = (at::randn({count}) * 100).to(dtype);
    auto out = at::empty_like(own), on_gpu = at::empty_like(own.cuda());
    reduce_partials(x, own, 1, out);
    reduce_partials(x.cuda(), own.cuda(), 1, on_gpu);
    REQUIRE(on_gpu.cpu().equal(out));
  }
}

TEST_CASE("reduce_partials refuses what does not fit") {
  const auto refused = ContainsSubstring("[reduce_partials] needs");
  const auto x = at::empty({2, 3}), own = at::empty({3});
  auto out = at::empty({3}), short_out = at::empty({2}), bf16_out = at::empty({3}, at::kBFloat16);
  REQUIRE_NOTHROW(reduce_partials(x, own, 2, out));
  REQUIRE_THROWS_WITH(reduce_partials(x, own, 3, out), refused);
  REQUIRE_THROWS_WITH(reduce_partials(x, own, -1, out), refused);
  REQUIRE_THROWS_WITH(reduce_partials(x, own, 0, short_out), refused);
  REQUIRE_THROWS_WITH(reduce_partials(x, own, 0, bf16_out), refused);
  REQUIRE_THROWS_WITH(reduce_partials(x, short_out, 0, short_out), refused);
  REQUIRE_THROWS_WITH(reduce_partials(at::empty({3, 2}).t(), own, 0, out), refused);
}

}  // namespace
}  // namespace scatterlm::ops

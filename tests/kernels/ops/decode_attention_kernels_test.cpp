// Attention of a step of generation as its op calls the kernel, on CPU tensors: compiled for tests/kernels/emulated.
#include "lib/ops/decode_attention.h"

#include "lib/ops/attention.h"

#include "tests/ops/check_op.h"

namespace scatterlm {

TEST_CASE("decode_attention on kernels: a text position by position", "[decode_attention]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const int64_t batch = 2, heads = 4, kv_heads = 2, width = GENERATE(8, 24), length = 70, window = GENERATE(0, 5);
  const auto options = at::TensorOptions().dtype(dtype);
  const auto q = test::randn({batch, length, heads, width}, 1).to(dtype);
  // Keys and values are parts of wider rows, the values of one that is not aligned to 16 bytes.
  const auto k = test::randn({batch, length, kv_heads * width + 16}, 2).to(dtype).narrow(2, 8, kv_heads * width);
  const auto v = test::randn({batch, length, kv_heads * width + 3}, 3).to(dtype).narrow(2, 1, kv_heads * width);
  const auto keys = k.unflatten(2, {kv_heads, width}), values = v.unflatten(2, {kv_heads, width});
  const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble); };
  const auto truth = ops::attention(wide(q), wide(keys), wide(values), {}, window),
             plain = ops::attention(q, keys, values, {}, window);
  const auto nan = at::full({batch, length, kv_heads, width}, std::nan(""), options);  // the kernel reads what is held only
  ops::KvCacheLayer cache{.k = nan.clone(), .v = nan.clone()};
  at::Tensor arrivals;
  for (int64_t n = 0; n < length; ++n) {
    const auto now = [&](const at::Tensor& x) { return x.narrow(1, n, 1); };
    const auto out = ops::decode_attention(now(q), now(keys), now(values), cache, at::full({1}, n, at::kLong), window);
    test::require_as_good_as(out, now(plain), now(truth), 4 * test::ulp_of(dtype));
    if (n == 0) arrivals = cache.arrivals;
    REQUIRE(cache.arrivals.is_same(arrivals));
  }
  REQUIRE(arrivals.sum().item<int64_t>() == 0);
  REQUIRE(at::equal(cache.k, keys));
  REQUIRE(at::equal(cache.v, values));
}

}  // namespace scatterlm

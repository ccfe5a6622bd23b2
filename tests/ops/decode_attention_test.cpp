#include "lib/ops/decode_attention.h"

#include <ATen/core/grad_mode.h>

#include "tests/ops/reference.h"

#include "tests/ops/check_op.h"

namespace scatterlm {
namespace {

struct DecodeCase {
  int64_t batch, heads, kv_heads, width, capacity, position, window = 0;
};

/// A step's inputs in fp64.
struct DecodeStep {
  at::Tensor q, k, v;
  ops::KvCacheLayer cache;

  explicit DecodeStep(const DecodeCase& c)
      : q(test::randn({c.batch, 1, c.heads, c.width}, 1)),
        k(test::randn({c.batch, 1, c.kv_heads, c.width}, 2)),
        v(test::randn({c.batch, 2, c.kv_heads, c.width}, 3).narrow(1, 1, 1)),  // a view
        cache{.k = test::randn({c.batch, c.capacity, c.kv_heads, c.width}, 4),
              .v = test::randn({c.batch, c.capacity, c.kv_heads, c.width}, 5)} {}

  DecodeStep to(at::ScalarType dtype, at::Device device) const {
    DecodeStep copy = *this;
    for (auto* x : {&copy.q, &copy.k, &copy.cache.k, &copy.cache.v}) *x = x->to(device, dtype, false, /*copy=*/true);
    auto rows = at::empty({v.size(0), 2, v.size(2), v.size(3)}, copy.q.options());
    copy.v = rows.narrow(1, 1, 1).copy_(v);
    return copy;
  }
};

using DecodeBackend = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&, ops::KvCacheLayer&,
                                     const at::Tensor&, int64_t);

/// Against attention over the positions that are held, the cache as it should be afterwards, and twice the same bits.
void require_step(const DecodeCase& c, DecodeBackend backend, at::ScalarType dtype, at::Device device) {
  INFO("B " << c.batch << ", H " << c.heads << ", Hkv " << c.kv_heads << ", P " << c.width << ", C " << c.capacity
            << ", position " << c.position << ", window " << c.window);
  const at::NoGradGuard no_grad;
  auto step = DecodeStep(c).to(dtype, device);
  const auto exact = step.to(at::kDouble, at::kCPU), plain = step.to(dtype, at::kCPU);
  const auto expected = [&](const DecodeStep& of) {
    const auto held = [&](const at::Tensor& cache, const at::Tensor& added) {
      return at::cat({cache.narrow(1, 0, c.position), added}, 1);
    };
    return reference::attention(of.q, held(of.cache.k, of.k), held(of.cache.v, of.v), {}, c.window);
  };
  auto k_after = step.cache.k.clone(), v_after = step.cache.v.clone();
  k_after.narrow(1, c.position, 1).copy_(step.k);
  v_after.narrow(1, c.position, 1).copy_(step.v);
  const auto position = at::full({1}, c.position, at::TensorOptions().dtype(at::kLong).device(device));
  const auto out = backend(step.q, step.k, step.v, step.cache, position, c.window);
  test::require_as_good_as(out, expected(plain), expected(exact), 4 * test::ulp_of(dtype));
  REQUIRE(at::equal(step.cache.k, k_after));
  REQUIRE(at::equal(step.cache.v, v_after));
  REQUIRE(at::equal(backend(step.q, step.k, step.v, step.cache, position, c.window), out));
}

}  // namespace

TEST_CASE("decode_attention: values and the cache", "[decode_attention]") {
  const auto c = GENERATE(DecodeCase{1, 1, 1, 2, 1, 0}, DecodeCase{2, 4, 2, 6, 9, 0}, DecodeCase{2, 4, 2, 6, 9, 5},
                          DecodeCase{1, 6, 1, 4, 33, 32}, DecodeCase{2, 3, 3, 4, 33, 31, 1}, DecodeCase{2, 4, 2, 6, 40, 33, 7},
                          DecodeCase{2, 4, 2, 6, 40, 5, 7}, DecodeCase{2, 4, 2, 6, 40, 30, 100});
  const auto backend = GENERATE(DecodeBackend{ops::decode_attention}, DecodeBackend{ops::ref::decode_attention});
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) require_step(c, backend, dtype, at::kCPU);
}

TEST_CASE("decode_attention: errors", "[decode_attention]") {
  const DecodeCase c{2, 4, 2, 6, 9, 5};
  const auto run = [](DecodeStep step, const at::Tensor& position, int64_t window = 0) {
    return ops::decode_attention(step.q, step.k, step.v, step.cache, position, window);
  };
  const auto at_position = [](int64_t position) { return at::full({1}, position, at::kLong); };
  const auto changed = [&](auto change) {
    DecodeStep step(c);
    change(step);
    return step;
  };
  REQUIRE_THROWS_WITH(run(DecodeStep(c), at_position(9)), "[decode_attention] position must be below C=9, got 9");
  REQUIRE_THROWS_WITH(run(DecodeStep(c), at::zeros({2}, at::kLong)),
                      "[decode_attention] position must be int64 [1], got Long [2]");
  REQUIRE_THROWS_WITH(run(DecodeStep(c), at_position(0), -1), ContainsSubstring("window must be 0 for all positions"));
  REQUIRE_THROWS_WITH(run(changed([](DecodeStep& s) {
                            s.q = at::ones({2, 2, 4, 6});
                          }),
                          at_position(0)),
                      ContainsSubstring("q and k must be [B, 1, H, P] and [B, 1, Hkv, P]"));
  REQUIRE_THROWS_WITH(run(changed([](DecodeStep& s) {
                            s.v = at::ones({2, 1, 2, 4});
                          }),
                          at_position(0)),
                      "[decode_attention] v must be [2, 1, 2, 6] as k, got [2, 1, 2, 4]");
  REQUIRE_THROWS_WITH(run(changed([](DecodeStep& s) {
                            s.cache.v = at::ones({1, 9, 2, 6});
                          }),
                          at_position(0)),
                      "[decode_attention] cache must be [B=2, C, Hkv=2, P=6], got [1, 9, 2, 6]");
  REQUIRE_THROWS_WITH(run(changed([](DecodeStep& s) { s.cache.v = s.cache.v.to(at::kFloat); }), at_position(0)),
                      "[decode_attention] keys, values and cache must be Double as q, got Float");
}

TEST_CASE("decode_attention: on a GPU", "[decode_attention][.gpu]") {
  // Among them widths without the kernel, long caches in many splits, and windows.
  const auto c =
      GENERATE(DecodeCase{1, 16, 16, 128, 256, 191}, DecodeCase{2, 8, 2, 64, 512, 511}, DecodeCase{3, 6, 2, 80, 300, 64},
               DecodeCase{1, 4, 4, 12, 40, 33}, DecodeCase{1, 8, 1, 256, 20000, 19000},
               DecodeCase{2, 4, 2, 64, 5000, 4321, 1000}, DecodeCase{1, 2, 2, 16, 256, 0});
  const auto backend = GENERATE(DecodeBackend{ops::decode_attention}, DecodeBackend{ops::ref::decode_attention});
  for (const auto dtype : {at::kFloat, at::kBFloat16}) require_step(c, backend, dtype, at::kCUDA);
}

}  // namespace scatterlm

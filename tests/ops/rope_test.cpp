#include "lib/ops/rope.h"

#include "lib/util/memory_meter.h"
#include "tests/ops/reference.h"

#include "tests/ops/check_op.h"

namespace scatterlm {
namespace {

using test::Tensors;

test::Op rope_op(int64_t positions, int64_t width) {
  return [=](const Tensors& x) {
    const auto [cos, sin] = ops::rope_tables(positions, width, 1e4, x[0].device());
    return ops::rope(x[0], cos, sin);
  };
}

const auto kReference = [](const Tensors& x) { return reference::rope(x[0], 1e4); };

}  // namespace

TEST_CASE("rope: values and gradients", "[rope]") {
  const auto shape = GENERATE(std::vector<int64_t>{1, 1, 1, 2}, std::vector<int64_t>{2, 5, 3, 6},
                              std::vector<int64_t>{2, 33, 2}, std::vector<int64_t>{2, 3, 2, 2, 32});
  const auto x = test::randn(shape, 1);
  const auto op = rope_op(shape[1], shape.back());
  test::require_equals_reference(op, kReference, {x}, 1e-6);  // the tables are fp32
  test::require_finite_differences(op, {x});
  test::require_low_precision(op, kReference, {x}, {.dtype = at::kFloat});
  test::require_low_precision(op, kReference, {x}, {.dtype = at::kBFloat16});
}

TEST_CASE("rope: tables keep their digits at long positions", "[rope]") {
  const auto [cos, sin] = ops::rope_tables(100001, 64, 1e4, at::kCPU);
  for (const int64_t i : {0, 1, 17, 31}) {
    const double angle = 1e5 * std::pow(1e4, -2.0 * i / 64);
    REQUIRE(std::abs(cos[100000][i].item<double>() - std::cos(angle)) < 1e-7);
    REQUIRE(std::abs(sin[100000][i].item<double>() - std::sin(angle)) < 1e-7);
  }
}

TEST_CASE("rope: a slice of a wider projection gives the bits of a copy", "[rope]") {
  const auto qkv = test::randn({2, 5, 3, 2, 8}, 2).to(at::kFloat);
  const auto [cos, sin] = ops::rope_tables(5, 8, 1e4, at::kCPU);
  const auto slice = qkv.select(2, 1);
  REQUIRE(at::equal(ops::rope(slice, cos, sin), ops::rope(slice.contiguous(), cos, sin)));
  const auto [short_cos, short_sin] = ops::rope_tables(5, 2, 1e4, at::kCPU);
  const auto strided = slice.transpose(2, 3);
  REQUIRE(at::equal(ops::rope(strided, short_cos, short_sin), ops::rope(strided.contiguous(), short_cos, short_sin)));
}

TEST_CASE("rope: of heads to be reordered, values and gradients", "[rope]") {
  const auto x = test::randn({2, 5, 2, 3, 8}, 4);
  const auto reordered = [](const test::Op& op) { return [=](const Tensors& x) { return op({x[0].transpose(2, 3)}); }; };
  const auto op = reordered(rope_op(5, 8)), reference = reordered(kReference);
  test::require_equals_reference(op, reference, {x}, 1e-6);
  test::require_finite_differences(op, {x});
  test::require_low_precision(op, reference, {x}, {.dtype = at::kBFloat16});
}

TEST_CASE("rope: heads are reordered without a copy, there and back", "[rope]") {
  const auto x = test::randn({2, 64, 2, 16, 64}, 5).to(at::kFloat).requires_grad_();
  const auto [cos, sin] = ops::rope_tables(64, 64, 1e4, at::kCPU);
  const MemoryMeter meter(at::kCPU);
  const auto y = ops::rope(x.transpose(2, 3), cos, sin).flatten(2, 3);
  const auto result = static_cast<double>(x.nbytes());
  REQUIRE(double(meter.peak_bytes()) < 1.1 * result);
  const auto dx = torch::autograd::grad({y}, {x}, {y.detach()})[0];
  REQUIRE(double(meter.peak_bytes()) < 2.1 * result);
  REQUIRE(dx.is_contiguous());
}

TEST_CASE("rope: rows of the tables are absolute positions", "[rope]") {
  const auto x = test::randn({1, 6, 2, 8}, 3).to(at::kFloat);
  const auto [cos, sin] = ops::rope_tables(6, 8, 1e4, at::kCPU);
  const auto all = ops::rope(x, cos, sin), last = ops::rope(x.slice(1, 5), cos.slice(0, 5), sin.slice(0, 5));
  REQUIRE(at::equal(all.slice(1, 5), last));
}

TEST_CASE("rope: errors", "[rope]") {
  const auto [cos, sin] = ops::rope_tables(4, 8, 1e4, at::kCPU);
  REQUIRE_THROWS_WITH(ops::rope(at::ones({1, 5, 2, 8}), cos, sin),
                      ContainsSubstring("[rope] cos and sin must be float [S=5, P/2=4], got Float [4, 4]"));
  REQUIRE_THROWS_WITH(ops::rope(at::ones({1, 4, 2, 7}), cos, sin), ContainsSubstring("even P, got [1, 4, 2, 7]"));
  REQUIRE_THROWS_WITH(ops::rope(at::ones({1, 4, 2, 2, 2, 8}), cos, sin), ContainsSubstring("[B, S, G, H, P]"));
  REQUIRE_THROWS_WITH(ops::rope_tables(4, 7, 1e4, at::kCPU), ContainsSubstring("head_dim must be even"));
}

TEST_CASE("rope: on a GPU", "[rope][.gpu]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const int64_t width = GENERATE(64, 24);  // with and without the kernel
  test::require_low_precision(rope_op(33, width), kReference, {test::randn({2, 33, 4, width}, 1)},
                              {.dtype = dtype, .device = at::kCUDA});
}

}  // namespace scatterlm

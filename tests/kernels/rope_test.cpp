#include "kernels/rope.h"

#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {
namespace {

struct Case {
  int batch, positions, heads, head_dim;
  int spare;           ///< columns between the heads of a position and the next position
  bool heads_outside;  ///< x lies as [B, H, S, P]
};

RopeArgs args_of(const Case& c, bool back) {
  const int64_t row = c.head_dim, position = c.heads * row + c.spare;
  return {.back = back,
          .batch = c.batch,
          .positions = c.positions,
          .heads = c.heads,
          .head_dim = c.head_dim,
          .stride_b = c.positions * position,
          .stride_s = c.heads_outside ? row : position,
          .stride_h = c.heads_outside ? c.positions * row : row};
}

std::vector<float> floats(const std::vector<Bf16>& x) {
  std::vector<float> values;
  for (const auto value : x) values.push_back(to_float(value));
  return values;
}

std::vector<double> expected_of(const RopeArgs& args, const std::vector<Bf16>& x, const std::vector<float>& cos,
                                const std::vector<float>& sin) {
  std::vector<double> y;
  const int64_t half = args.head_dim / 2;
  for (int64_t b = 0; b < args.batch; ++b)
    for (int64_t s = 0; s < args.positions; ++s)
      for (int64_t h = 0; h < args.heads; ++h)
        for (int64_t i = 0; i < args.head_dim; ++i) {
          const Bf16* from = x.data() + b * args.stride_b + s * args.stride_s + h * args.stride_h;
          const double c = cos[s * half + i % half], turn = (args.back ? -1 : 1) * sin[s * half + i % half];
          const double own = to_float(from[i]), other = to_float(from[(i + half) % args.head_dim]);
          y.push_back(own * c + (i < half ? -other : other) * turn);
        }
  return y;
}

}  // namespace

TEST_CASE("rope: values, forth and back, in either type", KERNEL_TAGS) {
  const auto c = GENERATE(Case{1, 1, 1, 16, 0, false}, Case{2, 5, 3, 48, 0, false}, Case{2, 3, 2, 64, 72, false},
                          Case{1, 2, 80, 64, 8, false}, Case{3, 4, 5, 32, 0, true}, Case{0, 4, 5, 32, 0, false});
  const bool back = GENERATE(false, true);
  INFO("B " << c.batch << ", S " << c.positions << ", H " << c.heads << ", P " << c.head_dim << ", back " << back);
  auto args = args_of(c, back);
  const auto x = randn(size_t(args.batch * args.stride_b), 1);
  std::vector<float> cos(size_t(c.positions) * c.head_dim / 2), sin(cos.size());
  for (size_t i = 0; i < cos.size(); ++i) {
    cos[i] = std::cos(float(i));
    sin[i] = std::sin(float(i));
  }
  const auto expected = expected_of(args, x, cos, sin);
  const Buffer<float> cosines(cos), sines(sin), wide_x(floats(x)), wide_y(expected.size());
  const Buffer<Bf16> narrow_x(x), narrow_y(expected.size());
  args.cos = cosines.data();
  args.sin = sines.data();
  args.x = narrow_x.data();
  args.y = narrow_y.data();
  rope(args, nullptr);
  args.type = DataType::kFp32;
  args.x = wide_x.data();
  args.y = wide_y.data();
  rope(args, nullptr);
  const auto narrow = narrow_y.host();
  const auto wide = wide_y.host();
  if (expected.empty()) return;
  REQUIRE(rounding_errors(narrow, expected) < 1.2);
  REQUIRE(relative_error(wide, expected) < 1e-6);
}

TEST_CASE("rope: P must be a multiple of 16", KERNEL_TAGS) {
  REQUIRE_THROWS_WITH(rope({.batch = 1, .positions = 1, .heads = 1, .head_dim = 24}, nullptr),
                      "[rope] P must be a multiple of 16, got 24");
}

}  // namespace scatterlm::kernels::test

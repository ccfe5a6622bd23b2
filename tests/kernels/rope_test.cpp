#include "kernels/rope.h"

#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {
namespace {

/// How x lies: [B, S, G, H, P] as the result, [B, G, H, S, P], or [B, S, H, G, P].
enum class Order { kAsResult, kHeadsOutside, kGroupsInside };

struct Case {
  int batch, positions, groups, heads, head_dim;
  int spare;  ///< columns between the heads of a position and the next position
  Order order = Order::kAsResult;
};

RopeArgs args_of(const Case& c, bool back) {
  const int64_t row = c.head_dim, position = c.groups * c.heads * row + c.spare;
  const int64_t head = c.order == Order::kHeadsOutside ? c.positions * row : row;
  const bool inside = c.order == Order::kGroupsInside;
  return {.type = DataType::kBfloat16,
          .back = back,
          .batch = c.batch,
          .positions = c.positions,
          .groups = c.groups,
          .heads = c.heads,
          .head_dim = c.head_dim,
          .stride_b = c.positions * position,
          .stride_s = c.order == Order::kHeadsOutside ? row : position,
          .stride_g = inside ? head : c.heads * head,
          .stride_h = inside ? c.groups * head : head};
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
      for (int64_t n = 0; n < args.groups * args.heads * args.head_dim; ++n) {
        const int64_t i = n % args.head_dim, h = n / args.head_dim % args.heads, g = n / args.head_dim / args.heads;
        const Bf16* from = x.data() + b * args.stride_b + s * args.stride_s + g * args.stride_g + h * args.stride_h;
        const double c = cos[s * half + i % half], turn = (args.back ? -1 : 1) * sin[s * half + i % half];
        const double own = to_float(from[i]), other = to_float(from[(i + half) % args.head_dim]);
        y.push_back(own * c + (i < half ? -other : other) * turn);
      }
  return y;
}

}  // namespace

TEST_CASE("rope: values, forth and back, in either type", KERNEL_TAGS) {
  const auto c = GENERATE(Case{1, 1, 1, 1, 16, 0}, Case{2, 5, 1, 3, 48, 0}, Case{2, 3, 2, 1, 64, 72}, Case{1, 2, 1, 80, 64, 8},
                          Case{3, 4, 1, 5, 32, 0, Order::kHeadsOutside}, Case{2, 3, 4, 3, 32, 0, Order::kHeadsOutside},
                          Case{2, 5, 3, 2, 48, 8, Order::kGroupsInside}, Case{1, 2, 40, 2, 64, 0, Order::kGroupsInside},
                          Case{0, 4, 1, 5, 32, 0}, Case{2, 4, 0, 5, 32, 0});
  const bool back = GENERATE(false, true);
  INFO("B " << c.batch << ", S " << c.positions << ", G " << c.groups << ", H " << c.heads << ", P " << c.head_dim << ", back "
            << back);
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
  args.type = DataType::kFloat32;
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
  REQUIRE_THROWS_WITH(rope({.batch = 1, .positions = 1, .groups = 1, .heads = 1, .head_dim = 24}, nullptr),
                      "[rope] P must be a multiple of 16, got 24");
}

}  // namespace scatterlm::kernels::test

#include "kernels/rms_norm.h"

#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {
namespace {

constexpr double kEps = 1e-5;
constexpr int64_t kNumSms = 2;  // so that a block has many rows

struct Case {
  int64_t rows, width;
  bool branch;
};

template <class T>
struct Inputs {
  explicit Inputs(const Case& c)
      : x(numbers<T>(c.rows * c.width, 1)),
        branch(numbers<T>(c.rows * c.width, 2)),
        dy(numbers<T>(c.rows * c.width, 3)),
        dsum(numbers<T>(c.rows * c.width, 4)),
        weight(numbers<T>(c.width, 5)) {}
  std::vector<T> x, branch, dy, dsum, weight;
};

struct Expected {
  std::vector<double> sum, y, rstd, dx, dweight;
};

template <class T>
Expected expected_of(const Case& c, const Inputs<T>& in) {
  Expected out;
  out.dweight.resize(size_t(c.width));
  for (int64_t row = 0; row < c.rows; ++row) {
    const auto at = [&](const std::vector<T>& x, int64_t i) { return double(to_float(x[size_t(row * c.width + i)])); };
    std::vector<double> x;
    double square = 0, dot = 0;
    for (int64_t i = 0; i < c.width; ++i) {
      x.push_back(rounded<T>(at(in.x, i) + (c.branch ? at(in.branch, i) : 0)));
      square += x.back() * x.back();
    }
    const double rstd = 1 / std::sqrt(square / double(c.width) + kEps);
    out.rstd.push_back(rstd);
    for (int64_t i = 0; i < c.width; ++i) dot += at(in.dy, i) * to_float(in.weight[size_t(i)]) * x[size_t(i)] * rstd;
    for (int64_t i = 0; i < c.width; ++i) {
      const double n = x[size_t(i)] * rstd, weight = to_float(in.weight[size_t(i)]);
      out.sum.push_back(x[size_t(i)]);
      out.y.push_back(rounded<T>(n) * weight);
      out.dx.push_back(rstd * (at(in.dy, i) * weight - n * dot / double(c.width)) + (c.branch ? at(in.dsum, i) : 0));
      out.dweight[size_t(i)] += at(in.dy, i) * n;
    }
  }
  return out;
}

/// Everything that the kernels write.
template <class T>
struct Results {
  std::vector<T> sum, y, dx, dweight;
  std::vector<float> rstd;
};

template <class T>
Results<T> run(const Case& c, const Inputs<T>& in) {
  const RmsNormShape shape{.type = kType<T>, .rows = c.rows, .width = c.width};
  const size_t size = size_t(c.rows * c.width);
  const Buffer<T> x(in.x), branch(in.branch), dy(in.dy), dsum(in.dsum), weight(in.weight), sum(size), y(size), dx(size),
      dweight(size_t(c.width));
  const Buffer<float> rstd(size_t(c.rows)), workspace(size_t(rms_norm_bwd_workspace_bytes(shape, kNumSms)) / sizeof(float));
  rms_norm_fwd({.shape = shape,
                .x = x.data(),
                .branch = c.branch ? branch.data() : nullptr,
                .weight = weight.data(),
                .sum = c.branch ? sum.data() : nullptr,
                .y = y.data(),
                .rstd = rstd.data(),
                .eps = static_cast<float>(kEps)},
               nullptr);
  rms_norm_bwd({.shape = shape,
                .dy = dy.data(),
                .dsum = c.branch ? dsum.data() : nullptr,
                .x = c.branch ? sum.data() : x.data(),
                .weight = weight.data(),
                .rstd = rstd.data(),
                .dx = dx.data(),
                .dweight = dweight.data(),
                .workspace = workspace.data(),
                .num_sms = kNumSms},
               nullptr);
  workspace.host();
  return {c.branch ? sum.host() : in.x, y.host(), dx.host(), dweight.host(), rstd.host()};
}

}  // namespace

TEMPLATE_TEST_CASE("rms_norm: values and gradients, with a branch to add and without", KERNEL_TAGS, Bf16, float) {
  const auto [rows, width] = GENERATE(
      table<int64_t, int64_t>({{1, 8}, {37, 24}, {33, 64}, {70, 768}, {21, 1032}, {9, 2048}, {3, 5000}, {2, 16384}, {0, 64}}));
  const Case c{rows, width, GENERATE(false, true)};
  INFO("N " << rows << ", D " << width << ", branch " << c.branch);
  const Inputs<TestType> in(c);
  const auto actual = run(c, in), again = run(c, in);
  REQUIRE((actual.sum == again.sum && actual.y == again.y && actual.dx == again.dx && actual.dweight == again.dweight));
  const auto expected = expected_of(c, in);
  REQUIRE(std::all_of(actual.dweight.begin(), actual.dweight.end(), [](auto x) { return std::isfinite(to_float(x)); }));
  if (rows == 0) return;
  for (size_t i = 0; i < expected.sum.size(); ++i) REQUIRE(to_float(actual.sum[i]) == expected.sum[i]);
  REQUIRE(relative_error(actual.rstd, expected.rstd) < 1e-6);
  if constexpr (sizeof(TestType) == 2) {
    REQUIRE(rounding_errors(actual.y, expected.y) < 1.2);
    REQUIRE(rounding_errors(actual.dx, expected.dx) < 1.2);
    REQUIRE(rounding_errors(actual.dweight, expected.dweight) < 1.2);
  } else {
    REQUIRE(relative_error(actual.y, expected.y) < 1e-6);
    REQUIRE(relative_error(actual.dx, expected.dx) < 1e-6);
    REQUIRE(relative_error(actual.dweight, expected.dweight) < 1e-6);
  }
}

TEST_CASE("rms_norm: errors", KERNEL_TAGS) {
  const auto fwd = [](int64_t width) { rms_norm_fwd({.shape = {.rows = 1, .width = width}}, nullptr); };
  REQUIRE_THROWS_WITH(fwd(12), "[rms_norm] rows of x must be multiples of 8 elements, got 12");
  REQUIRE_THROWS_WITH(fwd(16392), "[rms_norm] D must be at most 16384, got 16392");
}

}  // namespace scatterlm::kernels::test

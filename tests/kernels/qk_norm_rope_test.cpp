#include "kernels/qk_norm_rope.h"

#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {
namespace {

constexpr double kEps = 1e-5;
constexpr int64_t kNumSms = 3;  // so that a block has many positions

int64_t rows_of_norm(const QkNormRopeShape& s, int64_t heads) { return s.norm == QkNormRows::kHead ? heads : 1; }
int64_t width_of_norm(const QkNormRopeShape& s, int64_t heads) {
  return s.norm == QkNormRows::kHead ? s.head_dim : heads * s.head_dim;
}

/// Gradients of queries lie as [B, H, S, P], those of keys as [B, S, Hkv, P] with spare columns, those of values contiguous.
struct Strides {
  explicit Strides(const QkNormRopeShape& s)
      : q{s.query_heads * s.positions * s.head_dim, s.head_dim, s.positions * s.head_dim},
        k{s.positions * (s.key_heads + 1) * (s.head_dim + 8), (s.key_heads + 1) * (s.head_dim + 8), s.head_dim + 8},
        v{s.positions * s.key_heads * s.head_dim, s.key_heads * s.head_dim, s.head_dim} {}
  struct Of {
    int64_t b, s, h;
    HeadsMatrix of(const void* data) const { return {data, b, s, h}; }
  } q, k, v;
};

template <class T>
struct Inputs {
  explicit Inputs(const QkNormRopeShape& s)
      : strides(s),
        qkv(numbers<T>(s.tokens() * s.row_width(), 1)),
        q_weight(numbers<T>(width_of_norm(s, s.query_heads), 2)),
        k_weight(numbers<T>(width_of_norm(s, s.key_heads), 3)),
        dq(numbers<T>(s.batch * strides.q.b, 4)),
        dk(numbers<T>(s.batch * strides.k.b, 5)),
        dv(numbers<T>(s.batch * strides.v.b, 6)) {
    for (int64_t i = 0; i < s.positions * s.head_dim / 2; ++i) {
      cos.push_back(std::cos(float(i)));
      sin.push_back(std::sin(float(i)));
    }
  }
  Strides strides;
  std::vector<T> qkv, q_weight, k_weight, dq, dk, dv;
  std::vector<float> cos, sin;
};

struct Expected {
  std::vector<double> q, k, q_rstd, k_rstd, dqkv, dq_weight, dk_weight;
};

/// One position's queries or keys; `dy` [heads, P] is the gradient of what is rotated.
template <class T>
struct Row {
  const QkNormRopeShape& shape;
  int64_t heads, position;
  const T *x, *weight;
  const std::vector<float>&cos, &sin;

  double turned(const std::vector<double>& y, int64_t h, int64_t i, double sign) const {
    const int64_t half = shape.head_dim / 2, angle = position * half + i % half, head = h * shape.head_dim;
    const double own = y[size_t(head + i)], other = y[size_t(head + (i + half) % shape.head_dim)];
    return own * cos[size_t(angle)] + (i < half ? -sign : sign) * other * sin[size_t(angle)];
  }
  double weight_of(int64_t n) const { return to_float(weight[shape.norm == QkNormRows::kHead ? n % shape.head_dim : n]); }

  void forward(std::vector<double>& out, std::vector<double>& rstds) const {
    std::vector<double> y;
    for (int64_t n = 0; n < heads * shape.head_dim; ++n) y.push_back(to_float(x[n]));
    if (shape.norm != QkNormRows::kNone) {
      const int64_t width = width_of_norm(shape, heads);
      for (int64_t row = 0; row < rows_of_norm(shape, heads); ++row) {
        double square = 0;
        for (int64_t i = 0; i < width; ++i) square += y[size_t(row * width + i)] * y[size_t(row * width + i)];
        rstds.push_back(1 / std::sqrt(square / double(width) + kEps));
        for (int64_t n = row * width; n < (row + 1) * width; ++n)
          y[size_t(n)] = rounded<T>(rounded<T>(y[size_t(n)] * rstds.back()) * weight_of(n));
      }
    }
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < shape.head_dim; ++i) out.push_back(turned(y, h, i, 1));
  }

  void backward(const std::vector<double>& dout, const double* rstds, double* dx, std::vector<double>& dweight) const {
    std::vector<double> dy;
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < shape.head_dim; ++i) dy.push_back(turned(dout, h, i, -1));
    std::copy(dy.begin(), dy.end(), dx);
    if (shape.norm == QkNormRows::kNone) return;
    const int64_t width = width_of_norm(shape, heads);
    for (int64_t row = 0; row < rows_of_norm(shape, heads); ++row) {
      double dot = 0;
      const auto normed = [&](int64_t n) { return to_float(x[n]) * rstds[row]; };
      for (int64_t n = row * width; n < (row + 1) * width; ++n) dot += dy[size_t(n)] * weight_of(n) * normed(n);
      for (int64_t n = row * width; n < (row + 1) * width; ++n) {
        dx[n] = rstds[row] * (dy[size_t(n)] * weight_of(n) - normed(n) * dot / double(width));
        dweight[size_t(n % int64_t(dweight.size()))] += dy[size_t(n)] * normed(n);
      }
    }
  }
};

template <class T>
Expected expected_of(const QkNormRopeShape& s, const Inputs<T>& in) {
  Expected out;
  out.dqkv.resize(size_t(s.tokens() * s.row_width()));
  out.dq_weight.resize(in.q_weight.size());
  out.dk_weight.resize(in.k_weight.size());
  const auto heads_of = [&](const std::vector<T>& grad, const Strides::Of& strides, int64_t heads, int64_t token) {
    std::vector<double> values;
    for (int64_t n = 0; n < heads * s.head_dim; ++n)
      values.push_back(to_float(grad[size_t(token / s.positions * strides.b + token % s.positions * strides.s +
                                            n / s.head_dim * strides.h + n % s.head_dim)]));
    return values;
  };
  for (int64_t token = 0; token < s.tokens(); ++token) {
    const T* x = in.qkv.data() + token * s.row_width();
    double* dx = out.dqkv.data() + token * s.row_width();
    const int64_t keys = s.query_heads * s.head_dim, values = keys + s.key_heads * s.head_dim;
    const Row<T> q{s, s.query_heads, token % s.positions, x, in.q_weight.data(), in.cos, in.sin},
        k{s, s.key_heads, token % s.positions, x + keys, in.k_weight.data(), in.cos, in.sin};
    q.forward(out.q, out.q_rstd);
    k.forward(out.k, out.k_rstd);
    const auto last = [&](const std::vector<double>& rstds, int64_t heads) {
      return s.norm == QkNormRows::kNone ? nullptr : rstds.data() + rstds.size() - size_t(rows_of_norm(s, heads));
    };
    q.backward(heads_of(in.dq, in.strides.q, s.query_heads, token), last(out.q_rstd, s.query_heads), dx, out.dq_weight);
    k.backward(heads_of(in.dk, in.strides.k, s.key_heads, token), last(out.k_rstd, s.key_heads), dx + keys, out.dk_weight);
    const auto dv = heads_of(in.dv, in.strides.v, s.key_heads, token);
    std::copy(dv.begin(), dv.end(), dx + values);
  }
  return out;
}

/// Everything that the kernels write.
template <class T>
struct Results {
  std::vector<T> q, k, dqkv, dq_weight, dk_weight;
  std::vector<float> q_rstd, k_rstd;
};

template <class T>
Results<T> run(const QkNormRopeShape& s, const Inputs<T>& in) {
  const size_t tokens = size_t(s.tokens()), rows = s.norm == QkNormRows::kNone ? 0 : tokens;
  const Buffer<T> qkv(in.qkv), q_weight(in.q_weight), k_weight(in.k_weight), dq(in.dq), dk(in.dk), dv(in.dv),
      q(tokens * size_t(s.query_heads * s.head_dim)), k(tokens * size_t(s.key_heads * s.head_dim)), dqkv(in.qkv.size()),
      dq_weight(in.q_weight.size()), dk_weight(in.k_weight.size());
  const Buffer<float> cos(in.cos), sin(in.sin), q_rstd(rows * size_t(rows_of_norm(s, s.query_heads))),
      k_rstd(rows * size_t(rows_of_norm(s, s.key_heads))),
      workspace(size_t(qk_norm_rope_bwd_workspace_bytes(s, kNumSms)) / sizeof(float));
  qk_norm_rope_fwd({.shape = s,
                    .qkv = qkv.data(),
                    .cos = cos.data(),
                    .sin = sin.data(),
                    .q_weight = q_weight.data(),
                    .k_weight = k_weight.data(),
                    .q_rstd = q_rstd.data(),
                    .k_rstd = k_rstd.data(),
                    .q = q.data(),
                    .k = k.data(),
                    .eps = static_cast<float>(kEps)},
                   nullptr);
  qk_norm_rope_bwd({.shape = s,
                    .dq = in.strides.q.of(dq.data()),
                    .dk = in.strides.k.of(dk.data()),
                    .dv = in.strides.v.of(dv.data()),
                    .qkv = qkv.data(),
                    .q_weight = q_weight.data(),
                    .k_weight = k_weight.data(),
                    .q_rstd = q_rstd.data(),
                    .k_rstd = k_rstd.data(),
                    .cos = cos.data(),
                    .sin = sin.data(),
                    .dqkv = dqkv.data(),
                    .dq_weight = dq_weight.data(),
                    .dk_weight = dk_weight.data(),
                    .workspace = workspace.data(),
                    .num_sms = kNumSms},
                   nullptr);
  workspace.host();
  return {q.host(), k.host(), dqkv.host(), dq_weight.host(), dk_weight.host(), q_rstd.host(), k_rstd.host()};
}

template <class T>
void require_near(const std::vector<T>& actual, const std::vector<double>& expected) {
  if (expected.empty()) return;
  if constexpr (sizeof(T) == 2)
    REQUIRE(rounding_errors(actual, expected) < 1.2);
  else
    REQUIRE(relative_error(actual, expected) < 1e-6);
}

}  // namespace

TEMPLATE_TEST_CASE("qk_norm_rope: values and gradients of every norm", KERNEL_TAGS, Bf16, float) {
  const auto norm = GENERATE(QkNormRows::kNone, QkNormRows::kHead, QkNormRows::kFull);
  const auto [batch, positions, query_heads, key_heads, head_dim] =
      GENERATE(table<int64_t, int64_t, int64_t, int64_t, int64_t>({{1, 1, 1, 1, 16},
                                                                   {2, 37, 3, 1, 16},
                                                                   {2, 5, 3, 1, 48},
                                                                   {1, 17, 12, 4, 64},
                                                                   {3, 7, 16, 16, 128},
                                                                   {2, 3, 2, 1, 256},
                                                                   {1, 5, 5, 5, 80},
                                                                   {1, 9, 40, 8, 96},
                                                                   {1, 2, 64, 8, 128},
                                                                   {0, 4, 4, 2, 32}}));
  const QkNormRopeShape shape{.type = kType<TestType>,
                              .norm = norm,
                              .batch = batch,
                              .positions = positions,
                              .query_heads = query_heads,
                              .key_heads = key_heads,
                              .head_dim = head_dim};
  INFO("norm " << int(norm) << ", B " << batch << ", S " << positions << ", H " << query_heads << ", Hkv " << key_heads
               << ", P " << head_dim);
  const Inputs<TestType> in(shape);
  const auto actual = run(shape, in), again = run(shape, in);
  REQUIRE((actual.q == again.q && actual.k == again.k && actual.dqkv == again.dqkv));
  const auto expected = expected_of(shape, in);
  require_near(actual.q, expected.q);
  require_near(actual.k, expected.k);
  require_near(actual.dqkv, expected.dqkv);
  if (norm == QkNormRows::kNone || batch == 0) return;
  REQUIRE((actual.dq_weight == again.dq_weight && actual.dk_weight == again.dk_weight));
  REQUIRE(relative_error(actual.q_rstd, expected.q_rstd) + relative_error(actual.k_rstd, expected.k_rstd) < 1e-6);
  require_near(actual.dq_weight, expected.dq_weight);
  require_near(actual.dk_weight, expected.dk_weight);
}

TEST_CASE("qk_norm_rope: the weights' gradients of no positions are zero", KERNEL_TAGS) {
  const QkNormRopeShape shape{.type = DataType::kFloat32,
                              .norm = QkNormRows::kFull,
                              .batch = 1,
                              .positions = 0,
                              .query_heads = 2,
                              .key_heads = 1,
                              .head_dim = 16};
  const auto results = run(shape, Inputs<float>(shape));
  REQUIRE(results.dq_weight == std::vector<float>(32));
  REQUIRE(results.dk_weight == std::vector<float>(16));
}

TEST_CASE("qk_norm_rope: errors", KERNEL_TAGS) {
  const auto fwd = [](int64_t heads, int64_t head_dim) {
    qk_norm_rope_fwd({.shape = {.type = DataType::kBfloat16,
                                .batch = 1,
                                .positions = 1,
                                .query_heads = heads,
                                .key_heads = 1,
                                .head_dim = head_dim}},
                     nullptr);
  };
  REQUIRE_THROWS_WITH(fwd(1, 24), "[qk_norm_rope] P must be a multiple of 16, got 24");
  REQUIRE_THROWS_WITH(fwd(256, 128), "[qk_norm_rope] 256 heads of 128 are more than a block takes");
}

}  // namespace scatterlm::kernels::test

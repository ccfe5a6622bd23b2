#include "kernels/decode_attention.h"

#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {
namespace {

struct Case {
  int64_t batch, query_heads, key_heads, head_dim, capacity, position, window = 0;
};

DecodeAttentionArgs args_of(const Case& c) {
  return {.batch = c.batch,
          .capacity = c.capacity,
          .query_heads = c.query_heads,
          .key_heads = c.key_heads,
          .head_dim = c.head_dim,
          .k_stride = c.key_heads * c.head_dim + 8,  // as a part of a wider row
          .v_stride = c.key_heads * c.head_dim + 16,
          .window = c.window};
}

/// A cache with numbers before the position and NaN from there on, and what it is afterwards.
template <class T>
std::vector<T> with_rows(const Case& c, std::vector<T> cache, const std::vector<T>* added, int64_t stride) {
  const int64_t row = c.key_heads * c.head_dim;
  for (int64_t b = 0; b < c.batch; ++b) {
    const int64_t from = added ? c.position + 1 : c.position;
    std::memset(&cache[size_t((b * c.capacity + c.position) * row)], 0xFF, size_t((c.capacity - c.position) * row) * sizeof(T));
    for (int64_t i = 0; from > c.position && i < row; ++i)
      cache[size_t((b * c.capacity + c.position) * row + i)] = (*added)[size_t(b * stride + i)];
  }
  return cache;
}

template <class T>
std::vector<double> expected_of(const Case& c, const std::vector<T>& q, const std::vector<T>& keys,
                                const std::vector<T>& values) {
  std::vector<double> out;
  const int64_t row = c.key_heads * c.head_dim, first = c.window > 0 ? std::max<int64_t>(c.position + 1 - c.window, 0) : 0;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.query_heads; ++h) {
      const int64_t begin = b * c.capacity * row + h / (c.query_heads / c.key_heads) * c.head_dim;
      std::vector<double> sum(size_t(c.head_dim));
      double weights = 0;
      for (int64_t p = first; p <= c.position; ++p) {
        double score = 0;
        for (int64_t i = 0; i < c.head_dim; ++i)
          score += double(to_float(q[size_t((b * c.query_heads + h) * c.head_dim + i)])) *
                   to_float(keys[size_t(begin + p * row + i)]);
        const double weight = std::exp(score / std::sqrt(double(c.head_dim)));
        weights += weight;
        for (int64_t i = 0; i < c.head_dim; ++i) sum[size_t(i)] += weight * to_float(values[size_t(begin + p * row + i)]);
      }
      for (const double x : sum) out.push_back(x / weights);
    }
  return out;
}

template <class T>
void require_right(const Case& c) {
  auto args = args_of(c);
  const int64_t row = c.key_heads * c.head_dim, cached = c.batch * c.capacity * row;
  const auto q = numbers<T>(c.batch * c.query_heads * c.head_dim, 1), k = numbers<T>(c.batch * args.k_stride, 2),
             v = numbers<T>(c.batch * args.v_stride, 3), keys = numbers<T>(cached, 4), values = numbers<T>(cached, 5);
  const Buffer<T> device_q(q), device_k(k), device_v(v), out(q.size());
  const Buffer<T> k_cache(with_rows<T>(c, keys, nullptr, 0)), v_cache(with_rows<T>(c, values, nullptr, 0));
  const Buffer<int64_t> position(std::vector<int64_t>{c.position});
  const Buffer<int32_t> arrivals(std::vector<int32_t>(size_t(c.batch * c.query_heads)));
  const Buffer<char> workspace(size_t(decode_attention_workspace_bytes(args)));
  args.type = kType<T>;
  args.q = device_q.data();
  args.k = device_k.data();
  args.v = device_v.data();
  args.k_cache = k_cache.data();
  args.v_cache = v_cache.data();
  args.position = position.data();
  args.out = out.data();
  args.workspace = workspace.data();
  args.arrivals = arrivals.data();
  decode_attention(args, nullptr);
  const auto after_k = with_rows<T>(c, keys, &k, args.k_stride), after_v = with_rows<T>(c, values, &v, args.v_stride);
  const auto expected = expected_of<T>(c, q, after_k, after_v);
  const auto first = out.host();
  if constexpr (sizeof(T) == 2)
    REQUIRE(rounding_errors(first, expected) < 1.2);
  else
    REQUIRE(relative_error(first, expected) < 1e-6);
  const auto same = [](const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
  };
  REQUIRE(same(k_cache.host(), after_k));
  REQUIRE(same(v_cache.host(), after_v));
  workspace.host();                 // its guards
  decode_attention(args, nullptr);  // with what the first run left in workspace and counters
  REQUIRE(same(out.host(), first));
  REQUIRE(arrivals.host() == std::vector<int32_t>(size_t(c.batch * c.query_heads)));
}

}  // namespace

TEST_CASE("decode_attention: values and the cache, in either type", KERNEL_TAGS) {
  const auto c =
      GENERATE(Case{1, 1, 1, 8, 1, 0}, Case{2, 4, 2, 16, 256, 0}, Case{2, 4, 2, 24, 256, 62}, Case{1, 3, 3, 64, 256, 63},
               Case{1, 3, 3, 64, 256, 64}, Case{2, 6, 2, 80, 256, 65}, Case{1, 2, 1, 128, 512, 130},
               Case{1, 8, 1, 256, 256, 255}, Case{1, 1, 1, 8, 9000, 8999}, Case{1, 2, 1, 16, 300, 200, 3},
               Case{2, 2, 2, 32, 300, 299, 65}, Case{1, 2, 1, 16, 300, 5, 64}, Case{1, 2, 1, 16, 300, 200, 1000});
  INFO("B " << c.batch << ", H " << c.query_heads << ", Hkv " << c.key_heads << ", P " << c.head_dim << ", C " << c.capacity
            << ", position " << c.position << ", window " << c.window);
  require_right<Bf16>(c);
  require_right<float>(c);
}

TEST_CASE("decode_attention: errors", KERNEL_TAGS) {
  const auto run = [](const Case& c) { decode_attention(args_of(c), nullptr); };
  REQUIRE_THROWS_WITH(run({1, 1, 1, 12, 4, 0}), "[decode_attention] P must be a multiple of 8 up to 256, got 12");
  REQUIRE_THROWS_WITH(run({1, 1, 1, 264, 4, 0}), "[decode_attention] P must be a multiple of 8 up to 256, got 264");
  REQUIRE_THROWS_WITH(run({1, 3, 2, 16, 4, 0}), "[decode_attention] H must be a multiple of Hkv, got 3 and 2");
  REQUIRE_NOTHROW(run({0, 2, 2, 16, 4, 0}));
}

}  // namespace scatterlm::kernels::test

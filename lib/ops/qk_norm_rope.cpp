#include "lib/ops/qk_norm_rope.h"

#include <ATen/ATen.h>

#include "lib/ops/rms_norm.h"
#include "lib/ops/rope.h"
#include "lib/ops/shape.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

void check_heads(const at::Tensor& qkv, const QkNormRopeOptions& options, const at::Tensor& cos) {
  if (cos.dim() != 2) fail("[qk_norm_rope] cos must be [S, P/2], got {}", shape_of(cos));
  const int64_t width = 2 * cos.size(1), columns = (options.query_heads + 2 * options.key_heads) * width;
  if (qkv.dim() != 3 || qkv.size(2) != columns)
    fail("[qk_norm_rope] qkv must be [B, S, (H + 2 Hkv) P={}], got {}", columns, shape_of(qkv));
  if (options.query_weight.has_value() != options.key_weight.has_value())
    fail("[qk_norm_rope] needs weights of queries and of keys, or none");
  if (!options.query_weight) return;
  const auto is = [](const at::Tensor& weight, int64_t size) { return weight.dim() == 1 && weight.size(0) == size; };
  const at::Tensor &query = *options.query_weight, &key = *options.key_weight;
  const int64_t query_columns = options.query_heads * width, key_columns = options.key_heads * width;
  if (!(is(query, width) && is(key, width)) && !(is(query, query_columns) && is(key, key_columns)))
    fail("[qk_norm_rope] weights must be [P={}] twice, or [H P={}] and [Hkv P={}], got {} and {}", width, query_columns,
         key_columns, shape_of(query), shape_of(key));
}

}  // namespace

QueriesKeysValues qk_norm_rope(const at::Tensor& qkv, const QkNormRopeOptions& options, const at::Tensor& cos,
                               const at::Tensor& sin) {
  check_heads(qkv, options, cos);
  if (auto result = cuda::qk_norm_rope(qkv, options, cos, sin)) return *result;
  return ref::qk_norm_rope(qkv, options, cos, sin);
}

QueriesKeysValues ref::qk_norm_rope(const at::Tensor& qkv, const QkNormRopeOptions& options, const at::Tensor& cos,
                                    const at::Tensor& sin) {
  const int64_t width = 2 * cos.size(1), query = options.query_heads * width, key = options.key_heads * width;
  const auto parts = qkv.split_with_sizes({query, key, key}, -1);
  auto q = parts[0], k = parts[1], v = parts[2];
  const auto heads = [&](const at::Tensor& x) { return x.unflatten(-1, {-1, width}); };
  const auto normed = [&](const at::Tensor& x, const at::Tensor& weight) {
    if (weight.size(0) == x.size(-1)) return ops::rms_norm(x, weight, options.eps);
    return ops::rms_norm(heads(x), weight, options.eps).flatten(-2);
  };
  if (options.query_weight) {
    q = normed(q, *options.query_weight);
    k = normed(k, *options.key_weight);
  }
  if (options.clip > 0) {
    for (auto* x : {&q, &k, &v}) *x = x->clamp(-options.clip, options.clip);
  }
  return {ops::rope(heads(q), cos, sin), ops::rope(heads(k), cos, sin), heads(v)};
}

}  // namespace scatterlm::ops

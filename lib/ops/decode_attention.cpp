#include "lib/ops/decode_attention.h"

#include <ATen/ATen.h>

#include "lib/ops/attention.h"
#include "lib/ops/same_device.h"
#include "lib/ops/shape.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

void check_step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const KvCacheLayer& cache,
                const at::Tensor& position, int64_t window) {
  if (q.dim() != 4 || k.dim() != 4 || q.size(1) != 1 || k.size(1) != 1 || k.size(0) != q.size(0) || k.size(3) != q.size(3) ||
      k.size(2) < 1 || q.size(2) % k.size(2) != 0)
    fail("[decode_attention] q and k must be [B, 1, H, P] and [B, 1, Hkv, P] with H a multiple of Hkv, got {} and {}",
         shape_of(q), shape_of(k));
  if (v.sizes() != k.sizes()) fail("[decode_attention] v must be {} as k, got {}", shape_of(k), shape_of(v));
  for (const auto* held : {&cache.k, &cache.v}) {
    if (held->dim() != 4 || held->size(0) != k.size(0) || held->size(2) != k.size(2) || held->size(3) != k.size(3))
      fail("[decode_attention] cache must be [B={}, C, Hkv={}, P={}], got {}", k.size(0), k.size(2), k.size(3),
           shape_of(*held));
    check_same_device("decode_attention", q, "cache", *held);
  }
  for (const auto* other : {&k, &v, &cache.k, &cache.v})
    if (other->scalar_type() != q.scalar_type())
      fail("[decode_attention] keys, values and cache must be {} as q, got {}", c10::toString(q.scalar_type()),
           c10::toString(other->scalar_type()));
  if (position.sizes() != at::IntArrayRef({1}) || position.scalar_type() != at::kLong)
    fail("[decode_attention] position must be int64 [1], got {} {}", c10::toString(position.scalar_type()), shape_of(position));
  check_same_device("decode_attention", q, "position", position);
  if (window < 0) fail("[decode_attention] window must be 0 for all positions or a number of positions, got {}", window);
}

/// Only the positions that are held, as attention() takes them: the host knows their number.
at::Tensor attend_to_held(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const KvCacheLayer& cache,
                          int64_t position, int64_t window) {
  if (position < 0 || position >= cache.k.size(1))
    fail("[decode_attention] position must be below C={}, got {}", cache.k.size(1), position);
  cache.k.select(1, position).copy_(k.squeeze(1));
  cache.v.select(1, position).copy_(v.squeeze(1));
  return attention(q, cache.k.narrow(1, 0, position + 1), cache.v.narrow(1, 0, position + 1), {}, window);
}

}  // namespace

at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, KvCacheLayer& cache,
                            const at::Tensor& position, int64_t window) {
  check_step(q, k, v, cache, position, window);
  if (auto out = cuda::decode_attention(q, k, v, cache, position, window)) return *out;
  if (q.is_cpu()) return attend_to_held(q, k, v, cache, *position.const_data_ptr<int64_t>(), window);
  return ref::decode_attention(q, k, v, cache, position, window);
}

at::Tensor ref::decode_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, KvCacheLayer& cache,
                                 const at::Tensor& position, int64_t window) {
  cache.k.index_copy_(1, position, k);
  cache.v.index_copy_(1, position, v);
  const auto positions = at::arange(cache.k.size(1), position.options());
  auto seen = positions <= position;
  if (window > 0) seen = seen & (positions > position - window);
  return at::scaled_dot_product_attention(q.transpose(1, 2), cache.k.transpose(1, 2), cache.v.transpose(1, 2),
                                          seen.expand({q.size(0), 1, 1, -1}), /*dropout_p=*/0.0, /*is_causal=*/false,
                                          /*scale=*/std::nullopt, /*enable_gqa=*/q.size(2) != k.size(2))
      .transpose(1, 2);
}

}  // namespace scatterlm::ops

#include "lib/ops/attention.h"

#include <ATen/ATen.h>

#include "lib/ops/device.h"
#include "lib/ops/shape.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

void check(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask) {
  if (q.dim() != 4 || k.dim() != 4 || k.size(0) != q.size(0) || k.size(3) != q.size(3) || k.size(2) < 1 ||
      q.size(2) % k.size(2) != 0)
    fail("[attention] q and k must be [B, Sq, H, P] and [B, Sk, Hkv, P] with H a multiple of Hkv, got {} and {}", shape_of(q),
         shape_of(k));
  if (v.sizes() != k.sizes()) fail("[attention] v must be {} as k, got {}", shape_of(k), shape_of(v));
  if (q.size(1) != k.size(1) && q.size(1) != 1) fail("[attention] Sq must be Sk={} or 1, got {}", k.size(1), q.size(1));
  if (mask && (mask->sizes() != at::IntArrayRef({q.size(0), 1, q.size(1), k.size(1)}) || mask->scalar_type() != at::kBool))
    fail("[attention] mask must be bool [B={}, 1, Sq={}, Sk={}], got {} {}", q.size(0), q.size(1), k.size(1),
         c10::toString(mask->scalar_type()), shape_of(*mask));
}

/// [B, S, Hkv, P] -> [B, S, H, P] by repeating each head.
at::Tensor repeat_heads(const at::Tensor& x, int64_t heads) {
  const int64_t groups = heads / x.size(2);
  return x.unsqueeze(3).expand({-1, -1, -1, groups, -1}).flatten(2, 3);
}

/// `grouped`: k and v have fewer heads than q.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask,
                  bool grouped = false) {
  const bool causal = !mask && q.size(1) > 1;
  return at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask,
                                          /*dropout_p=*/0.0, causal, /*scale=*/std::nullopt, grouped)
      .transpose(1, 2);
}

/// [S, S]: whether the query of the row sees the key of the column.
at::Tensor window_mask(int64_t length, int64_t window, at::Device device) {
  const auto all = at::ones({length, length}, at::TensorOptions().dtype(at::kBool).device(device));
  return all.tril().triu(1 - window);
}

/// What LibTorch's flash attention takes. It needs a GPU of compute capability 8.0 or later, as our kernels do.
bool flash_takes(const at::Tensor& q) {
  return q.is_cuda() && has_kernels(q) && q.scalar_type() == at::kBFloat16 && q.size(3) % 8 == 0 && q.size(3) <= 256;
}

at::Tensor windowed_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::optional<at::Tensor>& mask, int64_t window) {
  const int64_t length = k.size(1);
  if (q.size(1) == 1) {
    const auto newest = [&](const at::Tensor& x, int64_t dim) { return x.slice(dim, length - window); };
    return attention(q, newest(k, 1), newest(v, 1), mask ? std::optional(newest(*mask, 3)) : std::nullopt);
  }
  if (!mask && flash_takes(q)) {
    return std::get<0>(at::_flash_attention_forward(q, k, v, /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, length, length,
                                                    /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false,
                                                    /*scale=*/std::nullopt, /*window_size_left=*/window - 1,
                                                    /*window_size_right=*/0));
  }
  const auto seen = window_mask(length, window, q.device());
  return attention(q, k, v, mask ? *mask & seen : seen.expand({q.size(0), 1, length, length}));
}

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask,
                     int64_t window) {
  check(q, k, v, mask);
  if (window < 0) fail("[attention] window must be 0 for all positions or a number of positions, got {}", window);
  if (window > 0 && window < k.size(1)) return windowed_attention(q, k, v, mask, window);
  const bool grouped = q.size(2) != k.size(2);
  // Groups where the fast kernels know none: LibTorch would fall back to one that writes all scores. On a CPU, turns take a
  // fifth to a half longer than the copies.
  if (grouped && q.is_cpu()) return attend(q, repeat_heads(k, q.size(2)), repeat_heads(v, q.size(2)), mask);
  if (grouped && (mask || q.scalar_type() != at::kBFloat16)) return attention_in_turns(q, k, v, mask);
  return attend(q, k, v, mask, grouped);
}

at::Tensor attention_in_turns(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::optional<at::Tensor>& mask) {
  check(q, k, v, mask);
  std::vector<at::Tensor> turns;
  for (const auto& queries : q.unflatten(2, {k.size(2), -1}).unbind(3)) turns.push_back(attend(queries, k, v, mask));
  return at::stack(turns, 3).flatten(2, 3);
}

at::Tensor document_mask(const at::Tensor& document_BS, int64_t num_queries) {
  if (document_BS.dim() != 2 || num_queries > document_BS.size(1))
    fail("[document_mask] document must be [B, Sk] with Sk of at least Sq={}, got {}", num_queries, shape_of(document_BS));
  const int64_t num_keys = document_BS.size(1);
  const auto positions = at::arange(num_keys, document_BS.options());
  const auto query_document = document_BS.slice(1, num_keys - num_queries);
  const auto causal = positions.slice(0, num_keys - num_queries).unsqueeze(1) >= positions.unsqueeze(0);
  return ((query_document.unsqueeze(2) == document_BS.unsqueeze(1)) & causal).unsqueeze(1);
}

}  // namespace scatterlm::ops

#include "lib/ops/attention.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "lib/ops/device.h"
#include "lib/ops/shape.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

void check_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  if (q.dim() != 4 || k.dim() != 4 || k.size(0) != q.size(0) || k.size(3) != q.size(3) || k.size(2) < 1 ||
      q.size(2) % k.size(2) != 0)
    fail("[attention] q and k must be [B, Sq, H, P] and [B, Sk, Hkv, P] with H a multiple of Hkv, got {} and {}", shape_of(q),
         shape_of(k));
  if (v.sizes() != k.sizes()) fail("[attention] v must be {} as k, got {}", shape_of(k), shape_of(v));
  if (q.size(1) != k.size(1) && q.size(1) != 1) fail("[attention] Sq must be Sk={} or 1, got {}", k.size(1), q.size(1));
}

void check_documents(const at::Tensor& k, const Documents& documents) {
  if (documents.batch() != k.size(0) || documents.length() != k.size(1))
    fail("[attention] documents must be of [B={}, Sk={}], got [{}, {}]", k.size(0), k.size(1), documents.batch(),
         documents.length());
  if (documents.offsets().device() != k.device())
    fail("[attention] documents must be on {} as k, got {}", k.device().str(), documents.offsets().device().str());
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

/// Documents, a window (above 0) or both by flash attention, whose work is that of the scores that are seen. Sq is Sk.
at::Tensor flash_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const std::optional<Documents>& documents, int64_t window) {
  const auto run = [&](const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                       const std::optional<at::Tensor>& offsets, int64_t longest) {
    return std::get<0>(at::_flash_attention_forward(
        queries, keys, values, offsets, offsets, longest, longest, /*dropout_p=*/0.0, /*is_causal=*/true,
        /*return_debug_mask=*/false, /*scale=*/std::nullopt,
        /*window_size_left=*/window > 0 ? std::optional(window - 1) : std::nullopt, /*window_size_right=*/0));
  };
  if (!documents) return run(q, k, v, {}, k.size(1));
  // Any bound on the length of a document serves; 1 would choose the form for decoding, which has no gradient.
  const int64_t longest = std::max<int64_t>(documents->longest(), 2);
  return run(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), documents->offsets(), longest).view(q.sizes());
}

/// All scores, of which those outside a mask are left out.
at::Tensor masked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::optional<at::Tensor>& mask) {
  const bool grouped = q.size(2) != k.size(2);
  // Groups where the fast kernels know none: LibTorch would fall back to one that writes all scores. On a CPU, turns take a
  // fifth to a half longer than the copies.
  if (grouped && q.is_cpu()) return attend(q, repeat_heads(k, q.size(2)), repeat_heads(v, q.size(2)), mask);
  if (grouped && (mask || q.scalar_type() != at::kBFloat16)) return attention_in_turns(q, k, v, mask);
  return attend(q, k, v, mask, grouped);
}

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<Documents>& documents,
                     int64_t window) {
  check_heads(q, k, v);
  if (documents) check_documents(k, *documents);
  if (window < 0) fail("[attention] window must be 0 for all positions or a number of positions, got {}", window);
  const int64_t queries = q.size(1), length = k.size(1);
  if (window >= length) window = 0;
  // On a GPU, causal attention without a mask is the fastest.
  const bool needs_documents = documents && (q.is_cpu() || !documents->one_per_sequence());
  if (queries > 1 && (needs_documents || window > 0) && flash_takes(q))
    return flash_attention(q, k, v, needs_documents ? documents : std::nullopt, window);

  std::optional<at::Tensor> mask;
  if (needs_documents) mask = documents->mask().slice(2, length - queries);
  if (window > 0 && queries == 1) {
    const auto newest = [&](const at::Tensor& x, int64_t dim) { return x.slice(dim, length - window); };
    return masked_attention(q, newest(k, 1), newest(v, 1), mask ? std::optional(newest(*mask, 3)) : std::nullopt);
  }
  if (window > 0) {
    const auto seen = window_mask(length, window, q.device());
    mask = mask ? *mask & seen : seen.expand({q.size(0), 1, length, length});
  }
  return masked_attention(q, k, v, mask);
}

at::Tensor attention_in_turns(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::optional<at::Tensor>& mask) {
  check_heads(q, k, v);
  if (mask && (mask->sizes() != at::IntArrayRef({q.size(0), 1, q.size(1), k.size(1)}) || mask->scalar_type() != at::kBool))
    fail("[attention] mask must be bool [B={}, 1, Sq={}, Sk={}], got {} {}", q.size(0), q.size(1), k.size(1),
         c10::toString(mask->scalar_type()), shape_of(*mask));
  std::vector<at::Tensor> turns;
  for (const auto& queries : q.unflatten(2, {k.size(2), -1}).unbind(3)) turns.push_back(attend(queries, k, v, mask));
  return at::stack(turns, 3).flatten(2, 3);
}

}  // namespace scatterlm::ops

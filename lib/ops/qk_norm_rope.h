#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace scatterlm::ops {

/// What an attention layer does with the product of its projection.
struct QkNormRopeOptions {
  int64_t query_heads;  ///< H
  int64_t key_heads;    ///< Hkv
  /// Weights of RMSNorm, both or none: [P] normalises each head, [H P] and [Hkv P] all queries and all keys of a position.
  std::optional<at::Tensor> query_weight = {}, key_weight = {};
  double eps = 0;   ///< of RMSNorm
  double clip = 0;  ///< above 0: queries, keys and values are limited to [-clip, clip] before the rotation
};

struct QueriesKeysValues {
  at::Tensor q;  ///< [B, S, H, P]
  at::Tensor k;  ///< [B, S, Hkv, P]
  at::Tensor v;  ///< [B, S, Hkv, P], a view of the projection's product unless it is clipped
};

/// Splits qkv [B, S, (H + 2 Hkv) P] into queries, keys and values, normalises queries and keys (rms_norm) and rotates them
/// (rope). cos and sin [S, P/2] float32 are the tables of rope for these S positions. All results have the dtype of qkv and are
/// differentiable in qkv and the weights. Where a kernel runs, it rounds in forward as the single ops do, and the gradient of
/// qkv once. Sources: Henry et al., arXiv 2010.04245 (the norm), Su et al., arXiv 2104.09864 (the rotation).
/// Throws "[qk_norm_rope] ..." for wrong shapes.
QueriesKeysValues qk_norm_rope(const at::Tensor& qkv, const QkNormRopeOptions& options, const at::Tensor& cos,
                               const at::Tensor& sin);

namespace ref {  // one op after the other, on any device
QueriesKeysValues qk_norm_rope(const at::Tensor& qkv, const QkNormRopeOptions& options, const at::Tensor& cos,
                               const at::Tensor& sin);
}
namespace cuda {  // nothing where no kernel takes these tensors
std::optional<QueriesKeysValues> qk_norm_rope(const at::Tensor& qkv, const QkNormRopeOptions& options, const at::Tensor& cos,
                                              const at::Tensor& sin);
}

}  // namespace scatterlm::ops

#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace scatterlm::ops {

/// Causal softmax attention with scale 1/sqrt(P) (Vaswani et al., arXiv 1706.03762); query head h uses key-value head
/// h / (H / Hkv), as in grouped-query attention (Ainslie et al., arXiv 2305.13245). q [B, Sq, H, P] and k, v [B, Sk, Hkv, P]
/// have one dtype, and H is a multiple of Hkv. Returns [B, Sq, H, P] in that dtype; differentiable. Sq is Sk, or 1 for the
/// newest position of a cache of Sk. With a mask [B, 1, Sq, Sk] of bools, a query sees the keys where it is true, instead of
/// all up to its own position. With window > 0 it sees, of these, only itself and the window - 1 positions before it
/// (sliding-window attention, Jiang et al., Mistral 7B, arXiv 2310.06825): bfloat16 on a GPU without a mask takes LibTorch's
/// flash attention, whose work grows with the window; elsewhere a window is a mask, whose work grows with Sk. Throws
/// "[attention] ..." if shapes do not fit.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask = {},
                     int64_t window = 0);

/// Computes the same for the first query head of every key-value head, then for the second, and so on, which needs no copies of
/// keys and values. attention() does this on a GPU for groups with a mask or in float32.
at::Tensor attention_in_turns(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::optional<at::Tensor>& mask = {});

/// Returns the mask [B, 1, num_queries, Sk] with which each of the newest `num_queries` positions sees the positions of its own
/// document up to itself. document_BS [B, Sk] is int32: equal numbers are one document. Throws "[document_mask] ..." for
/// another number of dimensions or more queries than positions.
at::Tensor document_mask(const at::Tensor& document_BS, int64_t num_queries);

}  // namespace scatterlm::ops

#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "lib/ops/documents.h"

namespace scatterlm::ops {

/// Causal softmax attention with scale 1/sqrt(P) (Vaswani et al., arXiv 1706.03762); query head h uses key-value head
/// h / (H / Hkv), as in grouped-query attention (Ainslie et al., arXiv 2305.13245). q [B, Sq, H, P] and k, v [B, Sk, Hkv, P]
/// have one dtype, and H is a multiple of Hkv. Returns [B, Sq, H, P] in that dtype; differentiable. Sq is Sk, or 1 for the
/// newest position of a cache of Sk. With documents [B, Sk], on the device of q, a query sees only the keys of its own document
/// up to its own position. With window > 0 it sees, of these, only itself and the window - 1 positions before it
/// (sliding-window attention, Jiang et al., Mistral 7B, arXiv 2310.06825). In bfloat16 on a GPU, LibTorch's flash attention
/// (Dao, FlashAttention-2, arXiv 2307.08691) takes documents and windows, and its work is that of the scores that are seen;
/// elsewhere both are a mask, and the work is that of all scores. Throws "[attention] ..." if shapes do not fit.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const std::optional<Documents>& documents = {}, int64_t window = 0);

/// Computes the same for the first query head of every key-value head, then for the second, and so on, which needs no copies of
/// keys and values. attention() does this on a GPU for groups with a mask or in float32. With a mask [B, 1, Sq, Sk] of bools a
/// query sees the keys where it is true, instead of all up to its own position.
at::Tensor attention_in_turns(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::optional<at::Tensor>& mask = {});

}  // namespace scatterlm::ops

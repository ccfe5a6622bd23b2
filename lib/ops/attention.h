#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace scatterlm::ops {

/// Causal softmax attention, scale 1/sqrt(P). Query head h uses key-value head h / (H / Hkv).
/// q [B, Sq, H, P], k, v [B, Sk, Hkv, P] -> [B, Sq, H, P]. Sq = Sk, or Sq = 1 for the newest position of a cache of Sk.
/// mask [B, 1, Sq, Sk] of bools: with it, a query sees the keys where it is true.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask = {});

/// The same for the first query head of every key-value head, then for the second, and so on: needs no copies of keys and
/// values. What attention() does on a GPU for groups with a mask or in fp32.
at::Tensor attention_in_turns(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::optional<at::Tensor>& mask = {});

/// The mask with which each of the newest `num_queries` positions sees those of its own document up to itself. document_BS [B,
/// Sk] int32: equal numbers are one document.
at::Tensor document_mask(const at::Tensor& document_BS, int64_t num_queries);

}  // namespace scatterlm::ops

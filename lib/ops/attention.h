#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace scatterlm::ops {

/// Causal softmax attention, scale 1/sqrt(P). Query head h uses key-value head h / (H / Hkv).
/// q [B, Sq, H, P], k, v [B, Sk, Hkv, P] -> [B, Sq, H, P]. Sq = Sk, or Sq = 1 for the newest position of a cache of Sk.
/// document [B, Sk] int32: with it, a query sees only keys of its own document (equal numbers).
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const std::optional<at::Tensor>& document = {});

}  // namespace scatterlm::ops

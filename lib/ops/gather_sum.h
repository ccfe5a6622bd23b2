// Moving rows between token order and expert order. Plain functions outside of autograd; ops with experts build on them.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace scatterlm::ops {

/// out[m] = x[index[m] / divisor]: token rows to expert order with index = sorted_R, divisor = K. x [rows, N], index [R] int32
/// -> [R, N].
at::Tensor gather_rows(const at::Tensor& x, const at::Tensor& index_R, int64_t divisor);

/// Which slots a token has: K each, t K .. t K + K - 1, or offsets[t] .. offsets[t+1] - 1.
struct TokenSlots {
  TokenSlots(int64_t top_k, at::Tensor offsets_T1 = {}) : top_k(top_k), offsets_T1(std::move(offsets_T1)) {}
  int64_t num_tokens(int64_t num_slots) const { return offsets_T1.defined() ? offsets_T1.size(0) - 1 : num_slots / top_k; }

  int64_t top_k;          ///< without a meaning where there are offsets
  at::Tensor offsets_T1;  ///< int32; undefined: K slots each
};

/// out[t] = sum over the slots i of t of gates[i] y[inverse[i]], in their order, accumulated in fp32 (fp64 of fp64); without
/// gates all are 1. y_RN in expert order -> [T, N].
at::Tensor gather_sum(const at::Tensor& y_RN, const at::Tensor& inverse_R, const TokenSlots& slots,
                      const std::optional<at::Tensor>& gates = {});

}  // namespace scatterlm::ops

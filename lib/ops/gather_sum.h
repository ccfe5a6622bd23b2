// Moving rows between token order and expert order. Plain functions outside of autograd; the ops with experts build on them.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace scatterlm::ops {

/// Copies rows: out[m] = x[index[m] / divisor]. With index = sorted_R and divisor = K this brings token rows to expert order.
/// x [rows, N] and index [R] int32, both contiguous -> [R, N] in x's dtype. Indices are not checked.
at::Tensor gather_rows(const at::Tensor& x, const at::Tensor& index_R, int64_t divisor);

/// Which slots a token has: the K slots t K .. t K + K - 1, or the slots offsets[t] .. offsets[t+1] - 1.
struct TokenSlots {
  TokenSlots(int64_t top_k, at::Tensor offsets_T1 = {}) : top_k(top_k), offsets_T1(std::move(offsets_T1)) {}
  int64_t num_tokens(int64_t num_slots) const { return offsets_T1.defined() ? offsets_T1.size(0) - 1 : num_slots / top_k; }

  int64_t top_k;          ///< K; not used where there are offsets
  at::Tensor offsets_T1;  ///< [T + 1] int32; undefined: every token has K slots
};

/// Sums the rows of every token: out[t] = sum over the slots i of t of gates[i] y[inverse[i]], in the order of the slots.
/// y_RN [R, N] in expert order, inverse_R [R] int32, gates one number per slot, float32 (float64 for a float64 y); without
/// gates all are 1. Sums are float32 (float64 for float64). Returns [T, N] in y's dtype. Everything must be contiguous.
at::Tensor gather_sum(const at::Tensor& y_RN, const at::Tensor& inverse_R, const TokenSlots& slots,
                      const std::optional<at::Tensor>& gates = {});

// Backends, of which gather_sum.cpp picks one.
namespace ref {  // LibTorch's own operations, on any device and without waiting for it
at::Tensor gather_sum(const at::Tensor& y_RN, const at::Tensor& inverse_R, const TokenSlots& slots,
                      const std::optional<at::Tensor>& gates);
}
namespace cpu {
at::Tensor gather_rows(const at::Tensor& x, const at::Tensor& index_R, int64_t divisor);
at::Tensor gather_sum(const at::Tensor& y_RN, const at::Tensor& inverse_R, const TokenSlots& slots,
                      const std::optional<at::Tensor>& gates);
}  // namespace cpu
namespace cuda {  // nothing where no kernel takes these tensors
std::optional<at::Tensor> gather_sum(const at::Tensor& y_RN, const at::Tensor& inverse_R, const TokenSlots& slots,
                                     const std::optional<at::Tensor>& gates);
}

}  // namespace scatterlm::ops

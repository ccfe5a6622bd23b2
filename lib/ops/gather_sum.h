// Moving rows between token order and expert order. Plain functions outside of autograd; ops with experts build on them.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace scatterlm::ops {

/// out[m] = x[index[m] / divisor]: token rows to expert order with index = sorted_R, divisor = K. x [rows, N], index [R] int32
/// -> [R, N].
at::Tensor gather_rows(const at::Tensor& x, const at::Tensor& index_R, int64_t divisor);

/// out[t] = sum over j of gates[t,j] y[inverse[t K + j]], in the order of j, accumulated in fp32 (fp64 of fp64); without gates
/// all are 1. y_RN in expert order -> [T, N] with T = R / K.
at::Tensor gather_sum(const at::Tensor& y_RN, const at::Tensor& inverse_R, int64_t top_k,
                      const std::optional<at::Tensor>& gates_TK = {});

}  // namespace scatterlm::ops
